//! `leasehold fence`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use common::{Done, Host};
use leasehold_testkit::servers::{Mysql, MysqlEdition, Postgres, Redis, RedisEdition};
use rusqlite::Connection;
use serde_json::json;

/// Runs `leasehold fence write` with this on its standard input.
fn write(host: &Host, args: &[&str], contents: &str) -> Done {
    let line: Vec<&str> = ["fence", "write"].iter().chain(args).copied().collect();
    let mut command = host.command(&line);
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // A stale writer ends without having read it.
    let _ = child.stdin.take().unwrap().write_all(contents.as_bytes());
    child.wait_with_output().unwrap().into()
}

fn key(host: &Host) -> String {
    let path = host.file("key", "0123456789abcdef0123456789abcdef\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What every store with a fence does.
fn fences(host: &Host) {
    let store = host.store();
    let seen = host.run(&["fence", "show", "stock"]).is(0);
    assert_eq!(seen.out, format!("stock: has seen nothing, at {store}\n"));
    let first = host.run(&["fence", "check", "stock", "7"]).is(0);
    assert_eq!(
        first.out,
        format!("stock: accepted; 7 is the newest it has seen, at {store}\n")
    );
    host.run(&["fence", "check", "stock", "7"]).is(0);
    let stale = host.run(&["fence", "check", "stock", "6"]).is(76);
    assert_eq!(
        stale.out,
        format!("stock: stale; it has seen 7, and yours is 6, at {store}\n")
    );
    assert_eq!(stale.err, "");
    host.run(&["fence", "check", "other", "6"]).is(0);
    let stale = host
        .run(&["fence", "check", "stock", "6", "--json"])
        .is(76)
        .json();
    let expected = json!({
        "schema": 1, "resource": "stock", "store": store, "outcome": "stale",
        "seen": {"epoch": 0, "token": "7"}, "yours": {"epoch": 0, "token": "6"},
    });
    assert_eq!(stale, expected);
    // Compared exactly, beyond what a floating-point number tells apart.
    host.run(&["fence", "check", "stock", "9007199254740993"])
        .is(0);
    host.run(&["fence", "check", "stock", "9007199254740992"])
        .is(76);

    let begun = host.run(&["fence", "advance", "stock", "2"]).is(0);
    let text = "stock: in epoch 2, having seen nothing of epoch 2; tokens of older epochs are stale, so offer new ones with --epoch 2";
    assert_eq!(begun.out, format!("{text}, at {store}\n"));
    host.run(&["fence", "check", "stock", "9007199254740994"])
        .is(76);
    host.run(&["fence", "check", "stock", "1.9007199254740994"])
        .is(76);
    host.run(&["fence", "check", "stock", "5", "--epoch", "2"])
        .is(0);
    host.run(&["fence", "check", "stock", "2.4"]).is(76);
    let behind = host.run(&["fence", "advance", "stock", "1"]).is(76);
    let text = "stock: not advanced to epoch 1; it has seen 2.5, and epochs don't go back";
    assert_eq!(behind.out, format!("{text}, at {store}\n"));
    let again = host
        .run(&["fence", "advance", "stock", "2", "--json"])
        .is(0)
        .json();
    assert_eq!(again["outcome"], "advanced");
    assert_eq!(again["seen"], json!({"epoch": 2, "token": "5"}));
    let seen = host.run(&["fence", "show", "stock", "--json"]).is(0).json();
    let nothing = serde_json::Value::Null;
    assert_eq!((&seen["outcome"], &seen["yours"]), (&nothing, &nothing));
    assert_eq!(seen["seen"], json!({"epoch": 2, "token": "5"}));
}

#[test]
fn an_sqlite_store_accepts_the_newest_token_and_refuses_older_ones() {
    let host = Host::new();
    fences(&host);
    // What keeps the locks goes on keeping them.
    host.run(&["run", "stock", "--", "true"]).is(0);
    host.run(&["fence", "check", "stock", "2.4"]).is(76);
}

#[test]
fn mysql_and_mariadb_accept_the_newest_token_and_refuse_older_ones() {
    for edition in MysqlEdition::ALL {
        let mysql = Mysql::start(edition).unwrap();
        let host = Host::on(mysql.url());
        fences(&host);
        // Where the locks are, or in the database that is named.
        let kept = |database: &str| {
            let select = format!("SELECT epoch, token FROM {database}.leasehold_fence");
            mysql.query(&format!("{select} WHERE resource = 'stock'"))
        };
        assert_eq!(kept("leasehold").unwrap(), "2\t5");
        let app = format!("{}/app", mysql.url());
        let check = [
            "fence",
            "check",
            "stock",
            "3",
            "--store",
            &app,
            "--connect-timeout",
            "20s",
        ];
        host.run(&check).is(78).says("no such database");
        mysql.query("CREATE DATABASE app").unwrap();
        host.run(&["fence", "show", "stock", "--store", &app]).is(0);
        assert_eq!(mysql.query("SHOW TABLES IN app").unwrap(), "");
        host.run(&check).is(0);
        assert_eq!(kept("app").unwrap(), "0\t3");
        // A row that somebody keeps locked is waited for no longer than any store's answer.
        let mut client = mysql.client().unwrap();
        let mut open = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = open.stdin.take().unwrap();
        let lock = "BEGIN; SELECT token FROM app.leasehold_fence FOR UPDATE;\n";
        stdin.write_all(lock.as_bytes()).unwrap();
        let mut token = [0];
        open.stdout.take().unwrap().read_exact(&mut token).unwrap();
        assert_eq!(token, *b"3");
        host.run(&check).is(69).says("open for longer");
        drop(stdin);
        open.wait().unwrap();
        host.run(&check).is(0);
    }
}

#[test]
fn postgres_accepts_the_newest_token_and_refuses_older_ones() {
    let postgres = Postgres::start().unwrap();
    fences(&Host::on(postgres.url()));
}

#[test]
fn redis_accepts_the_newest_token_and_refuses_older_ones() {
    let redis = Redis::start(RedisEdition::Redis7).unwrap();
    fences(&Host::on(redis.url()));
}

#[test]
fn a_prefix_keeps_resources_apart() {
    let host = Host::new();
    let (plain, prefixed) = (host.store(), format!("{}?prefix=eu/", host.store()));
    host.run(&["fence", "check", "stock", "7", "--store", &prefixed])
        .is(0);
    host.run(&["fence", "check", "stock", "6", "--store", &plain])
        .is(0);
    host.run(&["fence", "check", "eu/stock", "6", "--store", &plain])
        .is(76);
}

#[test]
fn the_mark_may_lie_in_a_programs_own_database() {
    let host = Host::new();
    let path = host.path().join("app.db");
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch("CREATE TABLE stock (item TEXT, count INTEGER)")
        .unwrap();
    let store = format!("sqlite://{}", path.display());
    let fence = |line: &[&str]| {
        let line: Vec<&str> = ["fence"]
            .iter()
            .chain(line)
            .copied()
            .chain(["--store", &store])
            .collect();
        host.run(&line)
    };
    // Looking changes nothing.
    fence(&["show", "stock"]).is(0);
    assert!(!database.table_exists(None, "leasehold_fence").unwrap());
    fence(&["check", "stock", "7"]).is(0);
    // The plain statement, as a program in any language sends it.
    let check = leasehold_fence::sql::SQLITE.check;
    assert_eq!(database.execute(check, ("stock", 0, 6)).unwrap(), 0);
    assert_eq!(database.execute(check, ("stock", 0, 8)).unwrap(), 1);
    fence(&["check", "stock", "7"]).is(76);
    let mode: String = database
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "delete", "the database was changed");
    // One that somebody keeps locked is waited for no longer than any store's answer.
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let line = ["check", "stock", "9", "--connect-timeout", "200ms"];
    fence(&line).is(69).says("database is locked");
    database.execute_batch("ROLLBACK").unwrap();
    let not_one = host.file(
        "text",
        "no database, but longer than the header of one would be, which is some 100 bytes",
    );
    let line = [
        "fence",
        "check",
        "stock",
        "7",
        "--store",
        &format!("sqlite://{}", not_one.display()),
    ];
    host.run(&line).is(78).says("no SQLite database");
}

/// As when it is being made, or who made it got no further.
#[test]
fn a_store_that_is_empty_becomes_one_of_locks_whatever_is_asked_of_it_first() {
    let host = Host::new();
    host.file("locks.db", "");
    host.run(&["fence", "check", "stock", "7"]).is(0);
    host.run(&["run", "x", "--", "true"]).is(0);
    host.run(&["fence", "check", "stock", "6"]).is(76);
    // Eight at once that find nothing.
    for round in 0..8 {
        let store = format!("sqlite://{}/fresh-{round}.db", host.path().display());
        let asking: Vec<_> = (0..8)
            .map(|at| {
                let line: &[&str] = match at % 2 {
                    0 => &["fence", "check", "stock", "7"],
                    _ => &["run", "x", "--wait", "20s", "--", "true"],
                };
                let mut command = host.command(line);
                command.env("LEASEHOLD_STORE", &store).spawn().unwrap()
            })
            .collect();
        for mut child in asking {
            assert!(child.wait().unwrap().success(), "round {round}");
        }
    }
}

#[test]
fn a_file_is_replaced_by_the_newest_holder_alone() {
    let host = Host::new();
    let path = host.file("stock.json", "old\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    let wrote = write(&host, &["./stock.json", "7"], "seven\n").is(0);
    assert_eq!(
        wrote.out,
        "./stock.json: accepted; 7 is the newest it has seen\n"
    );
    let stale = write(&host, &["./stock.json", "6"], "six\n").is(76);
    assert_eq!(
        stale.out,
        "./stock.json: stale; it has seen 7, and yours is 6\n"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "seven\n");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o604
    );
    // Before reading, and for an operator; without a store.
    let file = path.to_str().unwrap();
    let fence = |line: &[&str]| {
        let line: Vec<&str> = ["fence"].iter().chain(line).copied().collect();
        common::done(&mut host.bare(&line))
    };
    assert_eq!(
        fence(&["check", "./stock.json", "8"]).is(0).out,
        "./stock.json: accepted; 8 is the newest it has seen\n"
    );
    assert_eq!(
        fence(&["check", file, "7"]).is(76).out,
        format!("{file}: stale; it has seen 8, and yours is 7\n")
    );
    fence(&["advance", file, "1"]).is(0);
    assert_eq!(
        fence(&["show", file]).is(0).out,
        format!("{file}: has seen nothing of epoch 1\n")
    );
    write(&host, &["./stock.json", "9"], "nine\n").is(76);
    write(&host, &["./stock.json", "1.1"], "one\n").is(0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
    let elsewhere = write(&host, &["/proc/self/comm", "1"], "x").is(78);
    elsewhere.says("on proc");
}

#[test]
fn only_a_token_of_the_right_lock_counts() {
    let host = Host::new();
    host.run(&["fence", "check", "stock", "stock:7"]).is(0);
    host.run(&["fence", "check", "stock", "stock:6"]).is(76);
    host.run(&["fence", "check", "stock", "stack:8"])
        .is(64)
        .says("one of the lock \"stack\"");
    host.run(&["fence", "check", "stock", "stack:8", "--lock", "stack"])
        .is(0);
    host.run(&["fence", "check", "stock", "stock:9", "--lock", "stack"])
        .is(64);
    write(&host, &["./file", "stock:7"], "x")
        .is(64)
        .says("--lock");
    write(&host, &["./file", "stock:7", "--lock", "stock"], "x").is(0);
    // To the other commands this is a resource at the store.
    write(&host, &["file", "8"], "x").is(64).says("./file");
    for (token, says) in [
        ("", "not a token"),
        ("0", "not a token"),
        ("07", "not a token"),
        ("-7", ""),
        ("0.7", "not an epoch"),
        ("stock:", "not a token"),
        ("18446744073709551616", "not a token"),
    ] {
        host.run(&["fence", "check", "stock", token])
            .is(64)
            .says(says);
    }
    host.run(&["fence", "check", "stock", "2.7", "--epoch", "3"])
        .is(64)
        .says("another epoch");
    host.run(&["fence", "check", "stock//x", "7"])
        .is(64)
        .says("empty segment");
    host.run(&["fence", "check", "stock", "9223372036854775808"])
        .is(78)
        .says("SQL's integers");
    host.run(&["fence", "advance", "stock", "-1"]).is(64);
}

#[test]
fn a_resource_that_wants_signed_tokens_takes_no_other() {
    let host = Host::new();
    let key = key(&host);
    let sign = |name: &str, token: &str| {
        let signed = host
            .run(&["fence", "sign", name, token, "--key-file", &key])
            .is(0);
        signed.out.trim_end().to_owned()
    };
    let check = |token: &str| host.run(&["fence", "check", "stock", token, "--key-file", &key]);
    check(&sign("stock", "7")).is(0);
    check(&sign("stock", "6")).is(76);
    let forged = sign("stock", "8").replace(":8:", ":18446744073709551615:");
    check(&forged).is(77).says("signature is wrong");
    let torn = &forged[..forged.len() - 1];
    for unsigned in ["stock:18446744073709551615", "8", "x", "", torn] {
        check(unsigned).is(77).says("isn't signed");
    }
    check(&sign("stack", "8")).is(64).says("\"stack\"");
    host.run(&["fence", "check", "stock", &sign("stock", "8")])
        .is(64)
        .says("no key");
    check(&sign("stock", "1.1")).is(0);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    check("8").is(78).says("open to every user");
    let short = host.file("short", "0123456789");
    fs::set_permissions(&short, fs::Permissions::from_mode(0o600)).unwrap();
    let line = [
        "fence",
        "sign",
        "stock",
        "7",
        "--key-file",
        short.to_str().unwrap(),
    ];
    let refused = host.run(&line).is(78).says("has 10 bytes");
    assert!(!refused.err.contains("0123456789"), "{}", refused.err);
    assert!(Path::new(&key).exists());
}

#[test]
fn a_store_without_a_fence_is_refused_with_those_that_have_one() {
    let host = Host::new();
    for store in [
        "etcd://127.0.0.1:1",
        "zookeeper://127.0.0.1:1",
        "consul://127.0.0.1:1",
    ] {
        let refused = host
            .run(&["fence", "check", "stock", "7", "--store", store])
            .is(78);
        refused.says("sqlite://").says("redis://");
    }
    for store in [
        "redis+cluster://127.0.0.1:1",
        "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    ] {
        host.run(&["fence", "show", "stock", "--store", store])
            .is(78)
            .says("redis://");
    }
    let away = [
        "fence",
        "show",
        "stock",
        "--connect-timeout",
        "300ms",
        "--store",
        "redis://127.0.0.1:1",
    ];
    host.run(&away).is(69);
}
