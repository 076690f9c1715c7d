//! `acquire`, `extend` and `release`: a lock in the hands of a script, on every store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::HashMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Done, Host, done, signal};
use leasehold_core::clock;
use leasehold_testkit::servers::{Redis, RedisEdition};
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Does it on a file and on a server.
fn on_each(work: impl Fn(&Host)) {
    work(&Host::new());
    let redis = Redis::start(RedisEdition::Redis7).unwrap();
    work(&Host::on(redis.url()));
}

/// What a line that `acquire` printed sets, for a name that needs no more than its quotes.
fn exports(printed: &Done) -> HashMap<String, String> {
    let line = printed.out.strip_prefix("export ").unwrap();
    let line = line.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "{line}");
    line.split(' ')
        .map(|set| {
            let (name, value) = set.split_once('=').unwrap();
            (name.to_owned(), value.trim_matches('\'').to_owned())
        })
        .collect()
}

/// The command with what `acquire` set in its environment.
fn with(host: &Host, held: &HashMap<String, String>, args: &[&str]) -> Done {
    done(host.command(args).envs(held))
}

/// A shell script in which `leasehold` is ours.
fn script(host: &Host, text: &str) -> Command {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let folder = folder.parent().unwrap().display();
    let mut sh = Command::new("sh");
    sh.args(["-c", text])
        .env_clear()
        .env("PATH", format!("{folder}:/usr/local/bin:/usr/bin:/bin"))
        .env("HOME", host.path())
        .env("LEASEHOLD_STORE", host.store())
        .current_dir(host.path());
    sh
}

#[test]
fn a_hold_outlives_the_process_that_took_it_until_another_releases_it() {
    on_each(|host| {
        let taken = host.run(&["acquire", "jobs/x", "--ttl", "1h"]).is(0);
        assert_eq!(taken.err, "");
        let held = exports(&taken);
        assert_eq!(held["LEASEHOLD_NAME"], "jobs/x");
        let status = host.run(&["status", "jobs/x", "--json"]).is(0).json();
        assert_eq!(status["holder"]["token"], held["LEASEHOLD_TOKEN"]);
        let left = status["holder"]["expires_in_ms"].as_u64().unwrap();
        assert!((3_000_000..=3_600_000).contains(&left), "{left}");
        host.run(&["run", "jobs/x", "--", "touch", "ran"]).is(75);
        let busy = host.run(&["acquire", "jobs/x"]).is(75);
        assert_eq!(busy.out, "");
        assert!(
            busy.err
                .starts_with("leasehold: \"jobs/x\" is busy: held by")
        );

        let extended = with(host, &held, &["extend", "--ttl", "2h"]).is(0);
        assert_eq!((extended.out, extended.err), (String::new(), String::new()));
        let status = host.run(&["status", "jobs/x", "--json"]).is(0).json();
        assert!(status["holder"]["expires_in_ms"].as_u64().unwrap() > 3_600_000);

        let released = with(host, &held, &["release"]).is(0);
        assert_eq!((released.out, released.err), (String::new(), String::new()));
        host.run(&["run", "jobs/x", "--", "touch", "ran"]).is(0);
        let again = with(host, &held, &["release"]).is(76);
        assert!(again.err.contains("nobody has it"), "{}", again.err);
        with(host, &held, &["extend", "--ttl", "1h"]).is(76);
    });
}

#[test]
fn an_owner_that_is_not_the_holder_changes_nothing() {
    on_each(|host| {
        let first = exports(&host.run(&["acquire", "x", "--ttl", "500ms"]).is(0));
        let second = host.run(&["acquire", "x", "--wait", "30s", "--ttl", "1h"]);
        let second = exports(&second.is(0));
        let token =
            |held: &HashMap<String, String>| -> u64 { held["LEASEHOLD_TOKEN"].parse().unwrap() };
        assert!(token(&second) > token(&first));
        let late = with(host, &first, &["release"]).is(76);
        let line = format!(
            "leasehold: release \"x\": it had ended before, and somebody else has it (store {})\n",
            host.store()
        );
        assert_eq!(late.err, line);
        let late = with(host, &first, &["extend", "--ttl", "1h"]).is(76);
        assert!(late.err.contains("the lock is lost"), "{}", late.err);
        let status = host.run(&["status", "x", "--json"]).is(0).json();
        assert_eq!(status["holder"]["token"], second["LEASEHOLD_TOKEN"]);
        with(host, &second, &["release"]).is(0);
    });
}

#[test]
fn a_hold_ends_by_its_ttl_alone() {
    on_each(|host| {
        let begun = clock::now();
        host.run(&["acquire", "x", "--ttl", "2s"]).is(0);
        host.run(&["run", "x", "--wait", "30s", "--", "true"]).is(0);
        let took = clock::now().since(begun).steady;
        assert!(took >= Duration::from_secs(2), "{took:?}");
    });
}

#[test]
fn a_script_keeps_its_exit_code_and_gives_the_lock_back_at_its_end() {
    let idiom = "held=$(leasehold acquire deploy --ttl 10m $OPTIONS) || exit; eval \"$held\"; \
        trap 'leasehold release' EXIT; touch ran; exit 7";
    on_each(|host| {
        done(&mut script(host, idiom)).is(7);
        host.run(&["status", "deploy"]).is(1);
        std::fs::remove_file(host.path().join("ran")).unwrap();
        let held = exports(&host.run(&["acquire", "deploy"]).is(0));
        done(&mut script(host, idiom)).is(75);
        // A script that skips ends well, and does not go on without the lock.
        done(script(host, idiom).env("OPTIONS", "--if-busy skip")).is(0);
        assert!(!host.path().join("ran").exists());
        with(host, &held, &["release"]).is(0);
    });
}

#[test]
fn a_name_of_any_kind_passes_through_the_shell_unchanged() {
    let name = "it's \"a\" $(touch ran) `touch ran` \\ $HOME; touch ran é * 'x";
    let text = "held=$(leasehold acquire \"$1\") || exit; eval \"$held\" && \
        printf %s \"$LEASEHOLD_NAME\" && leasehold release";
    on_each(|host| {
        let mut sh = script(host, text);
        let ran = done(sh.args(["sh", name])).is(0);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), (name, ""));
        assert!(!host.path().join("ran").exists());
        host.run(&["status", name]).is(1);
    });
}

#[test]
fn the_owner_is_in_no_message_and_comes_from_a_file_or_stdin_too() {
    on_each(|host| {
        let taken = host
            .run(&["acquire", "x", "-v", "--ttl", "1h", "--json"])
            .is(0);
        let json = taken.json();
        let owner = json["owner"].as_str().unwrap().to_owned();
        let expected = serde_json::json!({"schema": 1, "name": "x", "store": host.store(),
            "token": json["token"], "owner": owner, "ttl_ms": 3_600_000});
        assert_eq!(json, expected);
        let file = host.file("owner", &format!("{owner}\n"));
        let file = file.to_str().unwrap();
        let extended = host.run(&["extend", "x", "-v", "--ttl", "2h", "--owner-file", file]);
        let extended = extended.is(0).says("extended \"x\" to 2h from now");
        let seen = [
            host.run(&["status", "x"]),
            host.run(&["list", "--all", "--json"]),
            host.run(&["run", "x", "--", "true"]).is(75),
            host.run(&["release", "x", "--owner-file", "-"]).is(78),
        ];
        let mut child = host
            .command(&["release", "x", "-v", "--owner-file", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.take().unwrap(), "{owner}").unwrap();
        let released: Done = child.wait_with_output().unwrap().into();
        let released = released.is(0).says("released \"x\"");
        let again = host.run(&["release", "x", "--owner-file", file]).is(76);
        for done in seen.iter().chain([&extended, &released, &again]) {
            assert!(!done.out.contains(&owner), "{}", done.out);
            assert!(!done.err.contains(&owner), "{}", done.err);
        }
        assert!(!taken.err.contains(&owner), "{}", taken.err);
    });
}

#[test]
fn an_owner_that_can_not_be_one_is_refused_without_its_text() {
    let host = Host::new();
    host.file("owner", "canary-no-owner\n");
    let by_file = ["release", "x", "--owner-file", "owner"];
    let by_variable = host
        .command(&["release", "x"])
        .env("LEASEHOLD_OWNER", "canary")
        .output();
    for refused in [host.run(&by_file), by_variable.unwrap().into()] {
        let refused = refused.is(78).says("not an owner");
        assert!(!refused.err.contains("canary"), "{}", refused.err);
    }
    host.run(&["release", "x", "--owner-file", "none"]).is(78);
    done(host.command(&["release"]).env("LEASEHOLD_NAME", "")).is(78);
    assert!(!host.path().join("locks.db").exists());
}

#[test]
fn a_signal_while_waiting_leaves_the_queue() {
    on_each(|host| {
        let held = exports(&host.run(&["acquire", "x", "--ttl", "1h"]).is(0));
        let waiting = host
            .command(&["acquire", "x", "--wait", "forever"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        host.await_waiters("x", 1);
        signal(Pid::from_child(&waiting), Signal::TERM);
        let waited: Done = waiting.wait_with_output().unwrap().into();
        let waited = waited.is(128 + Signal::TERM.as_raw());
        assert_eq!((waited.out.as_str(), waited.err.as_str()), ("", ""));
        host.await_waiters("x", 0);
        with(host, &held, &["release"]).is(0);
        host.run(&["status", "x"]).is(1);
    });
}

#[test]
fn a_lock_whose_owner_nobody_learns_is_given_back() {
    on_each(|host| {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let (reader, gone) = std::io::pipe().unwrap();
        drop(reader);
        for stdout in [Stdio::from(full), Stdio::from(gone)] {
            let mut command = host.command(&["acquire", "x", "--ttl", "1h"]);
            done(command.stdout(stdout))
                .is(70)
                .says("stdout can't be written");
            host.run(&["status", "x"]).is(1);
        }
    });
}

#[test]
fn a_skipped_lock_is_null_in_json() {
    let host = Host::new();
    let holding = host.hold("x", &[]);
    let skipped = host
        .run(&["acquire", "x", "--if-busy", "skip", "--json"])
        .is(0);
    let json = skipped.json();
    assert_eq!(json["name"], "x");
    for field in ["token", "owner", "ttl_ms"] {
        assert_eq!(json.get(field), Some(&Value::Null), "{json}");
    }
    host.run(&["acquire", "x", "--busy-code", "5"]).is(5);
    drop(holding);
}

#[test]
fn a_job_of_run_can_extend_and_release_its_own_lock() {
    on_each(|host| {
        let script = "leasehold extend --ttl 1h; echo $?; leasehold status x --json";
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold"))
            .parent()
            .unwrap();
        let mut command = host.command(&["run", "x", "--", "sh", "-c", script]);
        command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
        let ran = done(&mut command).is(0);
        let (code, status) = ran.out.split_once('\n').unwrap();
        assert_eq!(code, "0", "{}", ran.err);
        let status: Value = serde_json::from_str(status).unwrap();
        let left = status["holder"]["expires_in_ms"].as_u64().unwrap();
        assert!(left > 3_000_000, "{left}");
        let script = "leasehold release && leasehold status x";
        let mut command = host.command(&["run", "x", "--", "sh", "-c", script]);
        command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
        let ran = done(&mut command);
        assert!(ran.out.starts_with("x: free\n"), "{} {}", ran.out, ran.err);
        ran.is(76).says("no longer held");
    });
}
