//! Passwords: where they may stand, and that nobody sees them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Host, done, shows};

const CANARY: &str = "canary-7f3a";

#[test]
fn a_password_on_the_command_line_is_refused_naming_the_ways_that_work() {
    let host = Host::new();
    for url in [
        format!("redis://:{CANARY}@h"),
        format!("redis://h?auth-token={CANARY}"),
    ] {
        for args in [
            vec!["--store", &url, "list"],
            vec!["--json", "--store", &url, "run", "x", "--", "true"],
        ] {
            let refused = host.run(&args).is(64);
            for way in [
                "LEASEHOLD_STORE",
                "LEASEHOLD_PASSWORD",
                "password_file",
                "?password-file=",
            ] {
                assert!(refused.err.contains(way), "{}", refused.err);
            }
            assert!(!refused.err.contains(CANARY), "{}", refused.err);
        }
    }
}

#[test]
fn no_output_ever_shows_a_password() {
    let host = Host::new();
    let secret = host.file("secret", &format!("{CANARY}\n"));
    let config = host.file(
        "chosen.toml",
        &format!(
            "store = \"redis://:{CANARY}@h\"\npassword_file = \"{}\"\n",
            secret.display()
        ),
    );
    let broken = host.file(
        "broken.toml",
        &format!("store = \"redis://:{CANARY}@h\nttl = 3"),
    );
    let config = config.to_str().unwrap();
    // Nothing listens there.
    let with_secret = format!("redis://me:{CANARY}@localhost:1/0");
    let in_argv = format!("--store=redis://:{CANARY}@h");
    let lines: [&[&str]; 12] = [
        &["config"],
        &["config", "--json"],
        &["config", "--config", config],
        &["config", "--config", broken.to_str().unwrap()],
        &["list", "--connect-timeout", "300ms"],
        &["-v", "run", "x", "--connect-timeout", "300ms", "--", "env"],
        &["--json", "status", "x", "--connect-timeout", "300ms"],
        &["run", "x", "env", &with_secret],
        &[&in_argv, "run", "x", "env"],
        &[&in_argv, "--json", "run", "x", "env"],
        &["--sotre", &with_secret, "list"],
        &[&with_secret],
    ];
    for line in lines {
        for (name, value) in [
            ("LEASEHOLD_STORE", with_secret.as_str()),
            ("LEASEHOLD_STORE", &format!("redis://h?password={CANARY}")),
            ("LEASEHOLD_STORE", &format!("nonsense:{CANARY}@h")),
            ("LEASEHOLD_PASSWORD", CANARY),
        ] {
            let done = done(host.command(line).env(name, value));
            assert!(!done.out.contains(CANARY), "{line:?} {name}: {}", done.out);
            assert!(!done.err.contains(CANARY), "{line:?} {name}: {}", done.err);
        }
    }
    // The job: neither its environment nor what it can print of it.
    let mut command = host.command(&["run", "x", "--", "env"]);
    let ran = done(command.env("LEASEHOLD_PASSWORD", CANARY)).is(0);
    assert!(ran.out.contains("LEASEHOLD_TOKEN="), "{}", ran.out);
    assert!(!ran.out.contains(CANARY), "{}", ran.out);
}

#[test]
fn a_password_comes_from_where_it_counts_first() {
    let host = Host::new();
    let one = host.file("one", "one\n");
    let chosen = |text: &str| host.file("chosen.toml", text).to_str().unwrap().to_owned();
    let file = chosen(&format!(
        "store = \"redis://:in-url@h\"\npassword_file = \"{}\"\n",
        one.display()
    ));
    // Both in the file: the URL's own. The environment's counts before both.
    let config = done(&mut host.bare(&["config", "--config", &file])).is(0);
    shows(&config, &format!("password = ***  (file {file})"));
    shows(&config, &format!("store = redis://:***@h  (file {file})"));
    let config = done(
        host.bare(&["config", "--config", &file])
            .env("LEASEHOLD_PASSWORD", "x"),
    )
    .is(0);
    shows(&config, "password = ***  (environment LEASEHOLD_PASSWORD)");
    // The option's URL says where: it counts before the environment.
    let url = format!("redis://h?password-file={}", one.display());
    let mut command = host.bare(&["config", "--config", &file, "--store", &url]);
    let config = done(command.env("LEASEHOLD_PASSWORD", "x")).is(0);
    shows(
        &config,
        &format!("password = in the file {}  (option --store)", one.display()),
    );
    let file = chosen(&format!(
        "store = \"redis://h\"\npassword_file = \"{}\"\n",
        one.display()
    ));
    let config = done(&mut host.bare(&["config", "--config", &file])).is(0);
    shows(
        &config,
        &format!("password = in the file {}  (file {file})", one.display()),
    );
}

#[test]
fn a_password_file_that_can_not_be_right_is_said_to_be_so_without_its_text() {
    let host = Host::new();
    let at = |name: &str| host.path().join(name).display().to_string();
    host.file("empty", "\n");
    host.file("lines", "canary\ncanary\n");
    host.file("long", &"canary".repeat(1000));
    for (path, says) in [
        (at("none"), "No such file"),
        (at("empty"), "is empty"),
        (at("lines"), "one line"),
        (at("long"), "one line of at most"),
        ("relative".into(), "must have an absolute path"),
        (
            "$CREDENTIALS_DIRECTORY/none".into(),
            "creds/none: can't be read",
        ),
    ] {
        let mut command = host.bare(&["list"]);
        command.env("LEASEHOLD_STORE", format!("redis://h?password-file={path}"));
        let refused = done(command.env("CREDENTIALS_DIRECTORY", at("creds")))
            .is(78)
            .says(says);
        assert!(!refused.err.contains("canary"), "{}", refused.err);
    }
    let mut command = host.bare(&["list"]);
    command.env(
        "LEASEHOLD_STORE",
        "redis://h?password-file=$CREDENTIALS_DIRECTORY/x",
    );
    done(&mut command)
        .is(78)
        .says("CREDENTIALS_DIRECTORY, which isn't set");
    // One that can be read gets as far as the server, which isn't there.
    host.file("creds/x", "secret\r\n");
    let mut command = host.bare(&["list", "--connect-timeout", "300ms"]);
    command.env(
        "LEASEHOLD_STORE",
        "redis://localhost:1?password-file=$CREDENTIALS_DIRECTORY/x",
    );
    done(command.env("CREDENTIALS_DIRECTORY", at("creds"))).is(69);
}
