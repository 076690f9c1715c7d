//! What `status`, `list` and `break` answer, for people and as JSON.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Host, done, mask, me};
use serde_json::Value;

#[test]
fn status_shows_holder_note_token_store_and_queue() {
    let host = Host::new();
    let fresh = host.run(&["status", "x"]).is(1);
    assert_eq!(fresh.out, format!("x: free\n  store  {}\n", host.store()));
    let holding = host.hold("x", &["--note", "nightly"]);
    let mut waiting = host
        .command(&["run", "x", "--wait", "forever", "--", "true"])
        .spawn()
        .unwrap();
    host.await_waiters("x", 1);
    let status = host.run(&["status", "x"]).is(0);
    let expected = format!(
        "x: held by {me} (sh, pid N)\n  since N-N-NTN:N:NZ (D), for D more unless renewed\n  note   nightly\n  \
         token  N\n  store  {}\n  waiting N  {me} (true, pid N)\n",
        host.store(),
        me = me()
    );
    assert_eq!(mask(&status.out), mask(&expected));
    holding.end().is(0);
    assert!(waiting.wait().unwrap().success());
    let free = host.run(&["status", "x"]).is(1);
    assert_eq!(
        free.out,
        format!("x: free\n  last token  2\n  store  {}\n", host.store())
    );
}

#[test]
fn list_shows_what_is_held_below_a_prefix() {
    let host = Host::new();
    let none = host.run(&["list"]).is(0);
    assert_eq!((none.out.as_str(), none.err.as_str()), ("", ""));
    let holding = [
        host.hold("a/1", &["--note", "n"]),
        host.hold("a/2", &[]),
        host.hold("b", &[]),
    ];
    let names = |prefix: &str| -> Vec<String> {
        let list = host.run(&["list", prefix]).is(0);
        list.out
            .lines()
            .skip(1)
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(""), ["a/1", "a/2", "b"]);
    assert_eq!(names("a/"), ["a/1", "a/2"]);
    let list = host.run(&["list", "a/1"]).is(0);
    let words: Vec<Vec<&str>> = list
        .out
        .lines()
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect())
        .collect();
    let words: Vec<Vec<&str>> = words
        .iter()
        .map(|line| line.iter().map(|cell| cell.trim()).collect())
        .collect();
    assert_eq!(
        words[0],
        ["NAME", "HOLDER", "TOKEN", "HELD", "LEFT", "WAITING", "NOTE"]
    );
    assert_eq!(words[1][0], "a/1");
    assert_eq!(words[1][2], "1");
    assert_eq!(words[1][5..], ["0", "n"]);
    drop(holding);
}

/// The keys of an object, in order.
fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn json_of_a_lock_has_every_field_in_the_documented_form() {
    let host = Host::new();
    let free = host.run(&["status", "x", "--json"]).is(1).json();
    assert_eq!(
        free,
        serde_json::json!({"schema": 1, "name": "x", "store": host.store(), "held": false, "holder": null,
            "waiters": [], "last_token": null})
    );
    let holding = host.hold("x", &[]);
    let held = host.run(&["--json", "status", "x"]).is(0).json();
    let holder = &held["holder"];
    assert_eq!(
        keys(holder),
        [
            "expires_in_ms",
            "host",
            "note",
            "pid",
            "program",
            "since",
            "token",
            "user"
        ]
    );
    assert_eq!(holder["token"], "1");
    assert_eq!(holder["pid"], holding.pid().as_raw_pid());
    assert_eq!(holder["program"], "sh");
    assert_eq!(holder["note"], Value::Null);
    assert!(holder["expires_in_ms"].as_u64().unwrap() <= 30_000);
    let since = holder["since"].as_str().unwrap();
    assert_eq!((since.len(), &since[19..20], &since[23..]), (24, ".", "Z"));
    assert_eq!(held["last_token"], "1");
}

#[test]
fn json_lists_are_one_object_a_line() {
    let host = Host::new();
    let holding = [host.hold("x", &[]), host.hold("y", &[])];
    let list = host.run(&["list", "--json"]).is(0);
    let names: Vec<Value> = list
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].clone())
        .collect();
    assert_eq!(names, ["x", "y"]);
    drop(holding);
}

#[test]
fn json_messages_and_errors_have_every_field() {
    let host = Host::new();
    let holding = host.hold("x", &[]);
    let busy = host
        .run(&["--log", "json", "run", "x", "--", "true"])
        .is(75);
    let event = &busy.log()[0];
    assert_eq!(
        keys(event),
        [
            "event", "holder", "level", "message", "name", "reason", "schema", "store", "time",
            "token"
        ]
    );
    assert_eq!(
        (&event["event"], &event["level"], &event["schema"]),
        (&"busy".into(), &"error".into(), &1.into())
    );
    assert_eq!(event["holder"]["program"], "sh");
    drop(holding);

    let refused = host.run(&["status", "/x", "--json"]).is(64);
    let error = &refused.log()[0];
    assert_eq!(keys(error), ["error", "schema"]);
    assert_eq!(
        keys(&error["error"]),
        ["kind", "message", "name", "operation", "store"]
    );
    assert_eq!(error["error"]["kind"], "invalid");
    assert_eq!(error["error"]["name"], "/x");
    assert_eq!(error["error"]["store"], Value::Null);
}

#[test]
fn json_of_a_break_tells_its_outcome() {
    let host = Host::new();
    let holding = host.hold("x", &[]);
    let other = host
        .run(&["break", "x", "--if-token", "9", "--json"])
        .is(76)
        .json();
    assert_eq!(
        keys(&other),
        ["holder", "name", "outcome", "schema", "store"]
    );
    assert_eq!(other["outcome"], "other_token");
    assert_eq!(
        host.run(&["break", "x", "--json"]).is(0).json()["outcome"],
        "broken"
    );
    let lost = holding.wait().is(76);
    assert!(lost.err.starts_with("leasehold: lost"), "{}", lost.err);
    assert_eq!(
        host.run(&["break", "none", "--json"]).is(1).json()["outcome"],
        "free"
    );
}

#[test]
fn a_reader_that_goes_away_ends_a_list_in_good_order() {
    let host = Host::new();
    let holding = host.hold("x", &[]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let list = done(host.command(&["list"]).stdout(writer)).is(0);
    assert_eq!(list.err, "");
    drop(holding);
}

#[test]
fn every_store_that_speaks_tls_has_its_cryptography() {
    for store in [
        "consuls://127.0.0.1:1",
        "etcds://127.0.0.1:1",
        "mysql://me@127.0.0.1:1/?ssl-mode=REQUIRED",
        "postgres://me@127.0.0.1:1/locks?sslmode=require",
        "rediss://127.0.0.1:1",
        "zookeepers://127.0.0.1:1",
    ] {
        let host = Host::on(store);
        let refused = host.run(&["run", "x", "--connect-timeout", "1s", "--", "true"]);
        let refused = refused.is(69);
        assert!(
            !refused.err.contains("provider"),
            "{store}: {}",
            refused.err
        );
    }
}
