use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;

use leasehold_core::clock;

use super::super::process::LOOK;
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Asks over TCP; answers all that comes within the first read.
fn ask(redis: &Redis, line: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(redis.address())?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(format!("{line}\r\n").as_bytes())?;
    let mut reply = vec![0; 16 * 1024];
    let count = stream.read(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply[..count]).into_owned())
}

fn is_alive(id: u32) -> bool {
    // A zombie has no maps.
    std::fs::read(format!("/proc/{id}/maps")).is_ok_and(|maps| !maps.is_empty())
}

fn assert_dies(id: u32) {
    let since = clock::now();
    while is_alive(id) {
        assert!(clock::now().since(since).steady < PATIENCE, "{id} lives on");
        thread::sleep(LOOK);
    }
}

#[test]
fn every_edition_is_the_server_it_says() {
    for edition in RedisEdition::ALL {
        let redis = Redis::start(edition).unwrap();
        assert_eq!(ask(&redis, "PING").unwrap(), "+PONG\r\n");
        let info = ask(&redis, "INFO server").unwrap();
        let version = match edition {
            RedisEdition::Redis6 => "\nredis_version:6.2.",
            RedisEdition::Redis7 => "\nredis_version:7.0.",
            RedisEdition::Redis8 => "\nredis_version:8.0.",
            RedisEdition::Valkey8 => "\nvalkey_version:8.1.",
        };
        assert!(info.contains(version), "{edition:?}\n{info}");
        let id = redis.process_id().unwrap();
        assert!(info.contains(&format!("\nprocess_id:{id}\r")), "{info}");
    }
}

#[test]
fn no_file_of_the_machine_is_loaded() {
    // A wheel is made to run on whatever C library is there.
    let packages = RedisEdition::ALL
        .into_iter()
        .filter(|edition| *edition != RedisEdition::Redis6);
    for edition in packages {
        let redis = Redis::start(edition).unwrap();
        let maps = format!("/proc/{}/maps", redis.process_id().unwrap());
        let maps = std::fs::read_to_string(maps).unwrap();
        let files: Vec<&str> = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]))
            .collect();
        let inside = |file: &&&str| file.contains("/target/servers/");
        assert!(files.iter().filter(inside).count() > 3, "{maps}");
        assert_eq!(files.iter().find(|file| !inside(file)), None, "{maps}");
    }
}

#[test]
fn a_killed_server_comes_back_where_it_was_with_what_it_kept() {
    let args = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut redis = Redis::start_with(RedisEdition::Redis7, &args).unwrap();
    let (url, id) = (redis.url(), redis.process_id().unwrap());
    assert_eq!(ask(&redis, "SET key value").unwrap(), "+OK\r\n");
    redis.kill().unwrap();
    assert!(!is_alive(id));
    let error = ask(&redis, "GET key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    redis.start_again().unwrap();
    assert_eq!(redis.url(), url);
    assert_eq!(ask(&redis, "GET key").unwrap(), "$5\r\nvalue\r\n");
    redis.stop().unwrap();
    redis.start_again().unwrap();
    assert_eq!(ask(&redis, "GET key").unwrap(), "$5\r\nvalue\r\n");
}

#[test]
fn a_server_without_persistence_forgets() {
    let mut redis = Redis::start(RedisEdition::Redis7).unwrap();
    assert_eq!(ask(&redis, "SET key value").unwrap(), "+OK\r\n");
    redis.stop().unwrap();
    redis.start_again().unwrap();
    assert_eq!(ask(&redis, "GET key").unwrap(), "$-1\r\n");
}

#[test]
fn a_frozen_server_is_silent_until_it_is_thawed() {
    let redis = Redis::start(RedisEdition::Redis7).unwrap();
    redis.freeze().unwrap();
    let error = ask(&redis, "PING").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    redis.thaw().unwrap();
    assert_eq!(ask(&redis, "PING").unwrap(), "+PONG\r\n");
}

#[test]
fn a_frozen_server_can_be_stopped_and_killed() {
    let mut redis = Redis::start(RedisEdition::Redis7).unwrap();
    redis.freeze().unwrap();
    redis.stop().unwrap();
    redis.start_again().unwrap();
    redis.freeze().unwrap();
    redis.kill().unwrap();
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_files() {
    let redis = Redis::start(RedisEdition::Redis7).unwrap();
    let (id, folder) = (redis.process_id().unwrap(), redis.folder().to_path_buf());
    assert!(is_alive(id) && folder.exists());
    drop(redis);
    assert!(!is_alive(id) && !folder.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let start = || Redis::start(RedisEdition::Redis7).unwrap();
    let redis = thread::spawn(start).join().unwrap();
    // The parent-death signal would have come by now.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(ask(&redis, "PING").unwrap(), "+PONG\r\n");
}

/// Starts itself again as the process that is killed.
#[test]
fn a_server_dies_with_its_killed_process() {
    const ROLE: &str = "LEASEHOLD_TEST_KILLED_WITH_SERVER";
    if std::env::var_os(ROLE).is_some() {
        let redis = Redis::start(RedisEdition::Redis7).unwrap();
        std::fs::write(
            std::env::var_os(ROLE).unwrap(),
            redis.process_id().unwrap().to_string(),
        )
        .unwrap();
        thread::sleep(PATIENCE * 3);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("id");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            concat!(module_path!(), "::a_server_dies_with_its_killed_process")
                .split_once("::")
                .unwrap()
                .1,
        ])
        .env(ROLE, &said)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let since = clock::now();
    let id = loop {
        if let Ok(id) = std::fs::read_to_string(&said).unwrap_or_default().parse() {
            break id;
        }
        assert!(
            child.try_wait().unwrap().is_none(),
            "it never started a server"
        );
        assert!(clock::now().since(since).steady < PATIENCE * 2);
        thread::sleep(LOOK);
    };
    assert!(is_alive(id));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_dies(id);
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    let error = Redis::start_with(RedisEdition::Redis7, &["--no-such-setting", "1"]).unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains("no-such-setting"), "{text}");
    assert!(text.lines().count() > 2, "{text}");
}

#[test]
fn a_port_taken_by_a_stranger_is_said() {
    let mut redis = Redis::start(RedisEdition::Redis7).unwrap();
    redis.kill().unwrap();
    let _taken = std::net::TcpListener::bind(redis.address()).unwrap();
    let error = redis.start_again().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("Address already in use"), "{text}");
}

#[test]
fn a_server_that_asks_for_a_password_counts_as_started() {
    let redis = Redis::start_with(RedisEdition::Redis7, &["--requirepass", "secret"]).unwrap();
    assert!(ask(&redis, "GET key").unwrap().starts_with("-NOAUTH"));
}
