//! The fence in etcd, by its own command as the client.

use std::io::Write as _;
use std::process::Stdio;

use leasehold_core::{ErrorKind, Name, Token};
use leasehold_fence::{Checked, Mark, Seen, Stale, etcd};
use leasehold_testkit::servers::{Etcd, EtcdEdition};

fn mark(text: &str) -> Mark {
    text.parse().unwrap()
}

/// Runs the command with this on its standard input; the lines that it printed.
fn control(server: &Etcd, args: &[&str], input: &str) -> Vec<String> {
    let mut command = server.control().unwrap();
    let piped = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{args:?}: {input}");
    let text = String::from_utf8(done.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// Offers a mark with a write; what has been seen where that is newer.
fn offer(server: &Etcd, mark: Seen, write: &str) -> Option<Seen> {
    let key = etcd::key(&Name::new("stock").unwrap());
    let text = etcd::text(mark);
    let transaction =
        format!("value(\"{key}\") > \"{text}\"\n\nget {key}\n\nput {key} {text}\n{write}\n\n");
    let said = control(server, &["txn"], &transaction);
    match said[0].as_str() {
        "SUCCESS" => Some(etcd::read(said.last().unwrap().as_bytes()).unwrap()),
        "FAILURE" => None,
        other => panic!("{other}"),
    }
}

/// Offers a write of the mark's own text.
fn write(server: &Etcd, text: &str) -> Checked {
    let mark = mark(text);
    let newer = offer(server, mark.into(), &format!("put count {text}"));
    newer.map_or(Checked::Accepted, |seen| seen.check(mark))
}

fn count(server: &Etcd) -> Vec<String> {
    control(server, &["get", "count", "--print-value-only"], "")
}

fn stale(seen: Seen, yours: &str) -> Checked {
    Checked::Stale(Stale {
        seen,
        yours: mark(yours),
    })
}

#[test]
fn a_transaction_writes_for_the_newest_alone() {
    for edition in EtcdEdition::ALL {
        let server = Etcd::start(edition, 1).unwrap();
        for text in [
            "7",
            "7",
            "10",
            "18446744073709551614",
            "1.1",
            "10.1",
            "10.2",
        ] {
            assert_eq!(write(&server, text), Checked::Accepted, "{text}");
            assert_eq!(count(&server), [text]);
        }
        for text in [
            "10.1",
            "9.3",
            "2.18446744073709551615",
            "18446744073709551615",
        ] {
            let seen = mark("10.2").into();
            assert_eq!(write(&server, text), stale(seen, text), "{text}");
            assert_eq!(count(&server), ["10.2"]);
        }
        // An epoch that begins, one that has begun, and one that is over.
        assert_eq!(offer(&server, Seen::new(11, None), ""), None);
        let begun = Seen::new(11, None);
        assert_eq!(write(&server, "10.3"), stale(begun, "10.3"));
        assert_eq!(write(&server, "11.1"), Checked::Accepted);
        let seen = Seen::new(11, Token::new(1));
        assert_eq!(offer(&server, Seen::new(11, None), ""), Some(seen));
        assert_eq!(offer(&server, Seen::new(9, None), ""), Some(seen));
        assert_eq!(count(&server), ["11.1"]);
    }
}

#[test]
fn what_is_no_mark_is_an_error() {
    for value in [&b"stock"[..], b"", b"7", b"\xff"] {
        let error = etcd::read(value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
