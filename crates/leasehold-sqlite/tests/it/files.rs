//! The file itself: what it may be, where it may be, who may use it, and what happens when it goes or fills up.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use crate::common::{Agent, LONG, Place, busy, connect, contend, granted, until};
use leasehold_core::ErrorKind;
use leasehold_core::backend::Attempt;

/// Why this path is refused.
async fn refusal(path: &std::path::Path) -> (ErrorKind, String) {
    match connect(path).await {
        Ok(backend) => panic!("{backend:?}"),
        Err(error) => (error.kind(), error.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_programs_database_is_refused_and_left_as_it_is() {
    let place = Place::new();
    place.sql("CREATE TABLE theirs (x)");
    let before = std::fs::read(place.file()).unwrap();
    let (kind, text) = refusal(&place.file()).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("another program's"), "{text}");
    assert_eq!(before, std::fs::read(place.file()).unwrap());
    assert!(!place.live().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_database_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let text = "a text of somebody's, long enough to be more than a header. ".repeat(20);
    std::fs::write(place.file(), &text).unwrap();
    let (kind, told) = refusal(&place.file()).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(told.contains("not an SQLite database"), "{told}");
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_refused() {
    let place = Place::new();
    place.backend().await.close().await;
    place.sql("PRAGMA user_version = 2");
    let (kind, text) = refusal(&place.file()).await;
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(text.contains("another version"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_made_says_why() {
    let place = Place::new();
    let (kind, text) = refusal(&place.folder().join("none/locks.db")).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("none/locks.db can't be made"), "{text}");
    assert!(!place.folder().join("none").exists());

    let (kind, text) = refusal(place.folder()).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("is not a file"), "{text}");

    let (kind, text) = refusal(std::path::Path::new("/proc/locks.db")).await;
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(text.contains("local disk"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_to_the_file_do_not_split_it() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", LONG, false).await;
    granted(&mut holder).await;
    let link = place.folder().join("link.db");
    std::os::unix::fs::symlink(place.file(), &link).unwrap();
    let linked = connect(&link).await.unwrap();
    let mut other = contend(&linked, "a", LONG, false).await;
    busy(&mut other).await;
    assert!(!place.folder().join("link.db.live").exists());

    let hard = place.folder().join("hard.db");
    std::fs::hard_link(place.file(), &hard).unwrap();
    let (kind, text) = refusal(&hard).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("2 hard links"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_removed_in_use_grants_and_renews_nothing_any_more() {
    for suffix in ["", "-wal", "-shm"] {
        let place = Place::new();
        let backend = place.backend().await;
        let mut holder = contend(&backend, "a", LONG, false).await;
        granted(&mut holder).await;
        let file = format!("{}{suffix}", place.file().display());
        std::fs::remove_file(&file).unwrap();
        let error = holder.renew(LONG).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{file}");
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        let mut other = contend(&backend, "b", LONG, false).await;
        assert!(other.try_acquire().await.is_err(), "{file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_stopped_in_the_middle_of_a_write_is_an_error_and_not_a_hang() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", LONG, false).await;
    granted(&mut holder).await;
    // What such a process leaves: the lock of a transaction.
    let stopped = rusqlite::Connection::open(place.file()).unwrap();
    stopped.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = crate::common::now();
    let mut waiting = tokio::task::JoinSet::new();
    for lock in ["b", "c", "d", "e", "f"] {
        let backend = backend.clone();
        waiting.spawn(async move {
            let mut contender = contend(&backend, lock, LONG, false).await;
            contender.try_acquire().await.unwrap_err()
        });
    }
    // Those who came together wait together, not one after the other.
    for error in waiting.join_all().await {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error.to_string().contains("stopped in the middle"),
            "{error}"
        );
    }
    let took = Duration::from_nanos(crate::common::now() - begun);
    assert!(took < Duration::from_secs(10), "{took:?}");
    // Reading goes on, and writing once the other has.
    assert_eq!(backend.list("").await.unwrap().len(), 1);
    stopped.execute_batch("ROLLBACK").unwrap();
    let mut contender = contend(&backend, "b", LONG, false).await;
    granted(&mut contender).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_can_make_the_file_at_once() {
    for _ in 0..5 {
        let place = Place::new();
        let mut connecting = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let path = place.file();
            connecting.spawn(async move { connect(&path).await.unwrap() });
        }
        let backends = connecting.join_all().await;
        assert_eq!(place.live_files(), 12);
        let mut grants = 0;
        for backend in &backends {
            let mut contender = contend(backend, "a", LONG, false).await;
            grants += usize::from(matches!(
                contender.try_acquire().await.unwrap(),
                Attempt::Granted(_)
            ));
        }
        assert_eq!(grants, 1);
    }
}

#[test]
fn a_full_disk_leaves_no_half_state_and_known_locks_can_still_be_used() {
    let place = Place::new();
    // A file system of 1 MiB that only the agent sees.
    let mount = format!(
        "mount -t tmpfs -o size=1m tmpfs {}",
        place.folder().display()
    );
    let mut agent = Agent::start_in(&place, &["--mount"], &mount);
    assert_eq!(agent.ask("cycle a 5"), "cycled 5");
    assert_eq!(agent.ask("hog"), "hogged");
    // The log can't grow, and what it holds moves into the file instead.
    assert_eq!(agent.ask("cycle a 300"), "cycled 300");
    // New names need room, and there is none.
    let answer = agent.ask("fill");
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!((words[0], words[2]), ("full", "unavailable"), "{answer}");
    assert_eq!(agent.ask("list"), format!("list {}", words[1]));
    assert_eq!(agent.ask("unhog"), "unhogged");
    agent.acquire("b", LONG);
    let count: usize = words[1].parse().unwrap();
    assert_eq!(agent.ask("list"), format!("list {}", count + 1));
}

#[test]
fn an_empty_file_made_for_a_group_serves_whoever_comes_first() {
    let place = Place::new();
    std::fs::write(place.file(), "").unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(place.folder(), None, Some(61_000)).unwrap();
        std::fs::set_permissions(place.folder(), PermissionsExt::from_mode(0o2770)).unwrap();
        std::os::unix::fs::chown(place.file(), None, Some(61_000)).unwrap();
    }
    std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o660)).unwrap();
    for user in [61_001, 61_002, 61_001] {
        let mut agent = Agent::start_as(&place, user, 61_000);
        agent.acquire("a", LONG);
    }
}

#[test]
fn users_of_one_group_share_a_store_and_others_are_told_what_to_do() {
    let place = Place::new();
    let (one, two, other) = (61_001, 61_002, 61_003);
    let group = 61_000;
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(place.folder(), Some(one), Some(group)).unwrap();
        std::fs::set_permissions(place.folder(), PermissionsExt::from_mode(0o2770)).unwrap();
    }
    // Killed, it leaves what is beside the file as it was before the file was opened to the group.
    drop(Agent::start_as(&place, one, group));
    std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o660)).unwrap();

    let mut first = Agent::start_as(&place, one, group);
    let mut second = Agent::start_as(&place, two, group);
    let folder = std::fs::metadata(place.live()).unwrap();
    assert_eq!(folder.mode() & 0o777, 0o770);
    for file in std::fs::read_dir(place.live()).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o777, 0o660);
    }
    // Each excludes, wakes and outlives the other.
    first.acquire("a", LONG);
    assert_eq!(second.ask("try a 60000"), "busy");
    second.say("acquire a 60000");
    std::thread::sleep(Duration::from_millis(200));
    first.ask("release a");
    let released = crate::common::now();
    assert!(second.hear().starts_with("granted a "));
    let took = Duration::from_nanos(crate::common::now() - released);
    assert!(took < Duration::from_millis(700), "{took:?}");
    second.kill();
    first.acquire("a", LONG);

    if rustix::process::geteuid().is_root() {
        // Who may not enter the folder, and who may enter it and not write.
        let told = Agent::refused_as(&place, other, other);
        assert!(told.starts_with("error unauthorized "), "{told}");
        std::fs::set_permissions(place.folder(), PermissionsExt::from_mode(0o2775)).unwrap();
        let told = Agent::refused_as(&place, other, other);
        assert!(told.starts_with("error unauthorized "), "{told}");
        for word in ["locks.db", "user 61001", "mode 0660", "user 61003", "group"] {
            assert!(told.contains(word), "no {word} in {told}");
        }
    }
}

#[test]
fn a_file_that_may_not_be_made_is_no_refusal_of_rights() {
    if !rustix::process::geteuid().is_root() {
        // Only the superuser can become somebody who may not write here; the message itself is tested above.
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(place.folder(), PermissionsExt::from_mode(0o755)).unwrap();
    let told = Agent::refused_as(&place, 61003, 61003);
    assert!(told.starts_with("error invalid "), "{told}");
    assert!(told.contains("locks.db can't be made"), "{told}");
}

const GONE: &str = "fedcba98765432100123456789abcdef";

/// Makes a lock's row one of another boot whose holder left no liveness file.
fn age(place: &Place) {
    place.sql(&format!(
        "UPDATE locks SET clock = 'another boot/1', live = '{GONE}', ends = ends * 1000"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_another_boot_ends_once_seen_unchanged_for_its_ttl() {
    let place = Place::new();
    let backend = place.backend().await;
    let ttl = Duration::from_secs(1);
    let mut holder = contend(&backend, "a", ttl, false).await;
    let old = granted(&mut holder).await.token;
    age(&place);
    let begun = crate::common::now();
    // Each look by a process that lives no longer than that.
    let mut looks = 0;
    loop {
        let backend = place.backend().await;
        let mut contender = contend(&backend, "a", LONG, false).await;
        looks += 1;
        if let Attempt::Granted(grant) = contender.try_acquire().await.unwrap() {
            assert!(grant.token > old);
            break;
        }
        drop(contender);
        backend.close().await;
        assert!(crate::common::now() - begun < 10_000_000_000);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(looks > 2);
    let took = Duration::from_nanos(crate::common::now() - begun);
    assert!(took >= ttl, "{took:?}");
    assert!(took < ttl + Duration::from_secs(3), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_another_boot_is_free_at_once_where_its_process_left_its_file() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", LONG, false).await;
    granted(&mut holder).await;
    age(&place);
    std::fs::write(place.live().join(GONE), "").unwrap();
    let mut contender = contend(&backend, "a", LONG, false).await;
    granted(&mut contender).await;
    assert!(!place.live().join(GONE).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_another_boot_that_is_renewed_does_not_end() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", Duration::from_millis(600), false).await;
    granted(&mut holder).await;
    age(&place);
    let mut contender = contend(&backend, "a", LONG, false).await;
    for _ in 0..10 {
        busy(&mut contender).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        place.sql("UPDATE locks SET rev = rev + 1");
    }
    until(Duration::from_secs(5), async || {
        matches!(contender.try_acquire().await.unwrap(), Attempt::Granted(_))
    })
    .await;
}
