//! What a person at a terminal sees.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use common::{Host, mask, me};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Both ends of a pseudo-terminal with so many columns.
fn terminal(columns: u16) -> (File, File) {
    let ours: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&theirs, size).unwrap();
    (ours.into(), theirs)
}

/// All that was shown until `done`, which is read to its end.
fn read_until(ours: &mut File, done: impl Fn(&str) -> bool) -> String {
    let mut shown = Vec::new();
    let mut buffer = [0; 1024];
    while !done(&String::from_utf8_lossy(&shown)) {
        let read = ours.read(&mut buffer).unwrap();
        assert!(read > 0, "the terminal closed");
        shown.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(shown).unwrap()
}

#[test]
fn a_wait_shows_for_whom_and_how_long_and_takes_the_line_back() {
    for columns in [200, 40] {
        let host = Host::new();
        let holding = host.hold("x", &[]);
        let (mut ours, theirs) = terminal(columns);
        let mut waiting = host
            .command(&[
                "run",
                "x",
                "--wait",
                "forever",
                "--",
                "sh",
                "-c",
                "echo ran >&2",
            ])
            .stdout(Stdio::null())
            .stderr(theirs)
            .spawn()
            .unwrap();
        // Drawn anew each second.
        let shown = read_until(&mut ours, |shown| shown.matches("\r\x1b[K").count() >= 3);
        let lines: Vec<&str> = shown.split("\r\x1b[K").collect();
        assert_eq!(lines[0], "");
        let full = format!(
            "leasehold: waiting D for \"x\": held by {} (sh, pid N) since",
            me()
        );
        if columns == 200 {
            assert!(mask(lines[1]).starts_with(&mask(&full)), "{shown:?}");
            assert_ne!(lines[1], lines[2], "it stood still");
        } else {
            assert!(lines[1].starts_with("leasehold: waiting "), "{shown:?}");
            assert_eq!(lines[1].chars().count(), 39, "{shown:?}");
        }
        assert!(!shown.contains('\n'), "{shown:?}");
        holding.end().is(0);
        let shown = read_until(&mut ours, |shown| shown.contains("ran"));
        assert!(
            shown.contains("\r\x1b[Kran"),
            "the line was left standing: {shown:?}"
        );
        assert!(waiting.wait().unwrap().success());
    }
}
