//! The examples of a fence in other languages, with the failure that each guards against.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::common::{self, Host, done, eventually};
use crate::{example, host, job};
use leasehold_fence::sql::SQLITE;
use leasehold_testkit::servers::ZooKeeper;
use rusqlite::Connection;

/// A run of the example that counts pieces in a file is frozen between reading and writing, and another comes between.
fn file_example(host: &Host, program: &str, first: &[&str]) {
    let count = host.file("stock", "10\n");
    let file = count.to_str().unwrap();
    let args = |pieces| {
        first
            .iter()
            .copied()
            .chain([file, pieces])
            .collect::<Vec<&str>>()
    };
    // Under the lock, as its first lines say.
    let line: Vec<&str> = ["run", "stock", "--", program]
        .into_iter()
        .chain(args("1"))
        .collect();
    let ran = done(job(host, "leasehold", &line).env_remove("LEASEHOLD_TOKEN")).is(0);
    assert_eq!(ran.out, "9 left\n", "{}", ran.err);
    done(job(host, program, &args("10")).env("LEASEHOLD_TOKEN", "6"))
        .is(1)
        .says("only 9 left");

    // A pause in the worst place: all is decided, and nothing is written.
    let slow = "#!/bin/sh\nif [ \"$2\" = write ]; then touch paused; \
        until [ -e go ]; do sleep 0.05; done; fi\nexec \"$REAL\" \"$@\"\n";
    let wrapper = host.file("slow/leasehold", slow);
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let mut frozen = job(host, program, &args("2"));
    let path = format!(
        "{}/slow:{}",
        host.path().display(),
        std::env::var("PATH").unwrap()
    );
    frozen
        .env("PATH", path)
        .env("REAL", env!("CARGO_BIN_EXE_leasehold"))
        .env("LEASEHOLD_TOKEN", "7");
    let frozen = frozen
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually(|| host.path().join("paused").exists());
    let next = done(job(host, program, &args("3")).env("LEASEHOLD_TOKEN", "8")).is(0);
    assert_eq!(next.out, "6 left\n");
    host.file("go", "");
    let refused = common::Done::from(frozen.wait_with_output().unwrap()).is(76);
    assert_eq!(refused.out, "");
    assert_eq!(fs::read_to_string(&count).unwrap(), "6\n");
}

#[test]
fn a_shell_script_that_was_overtaken_changes_nothing() {
    let script = example("fence/stock.sh");
    file_example(&host(Host::new()), script.to_str().unwrap(), &[]);
}

#[test]
fn a_java_program_that_was_overtaken_changes_nothing() {
    let source = example("fence/Stock.java");
    let host = host(Host::new());
    // Whichever Java the tests have, as one word.
    let java = ZooKeeper::java().unwrap();
    let words = std::iter::once(java.get_program()).chain(java.get_args());
    let words: Vec<String> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "));
    let program = host.file("bin/java", &script);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    file_example(&host, "java", &[source.to_str().unwrap()]);
}

#[test]
fn a_python_program_that_was_overtaken_changes_nothing() {
    let host = host(Host::new());
    let script = example("fence/stock.py");
    let text = fs::read_to_string(&script).unwrap();
    // What it sends is what is tested elsewhere.
    assert!(text.contains(SQLITE.table), "{}", SQLITE.table);
    assert!(text.contains(SQLITE.check), "{}", SQLITE.check);
    let database = Connection::open(host.path().join("shop.db")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE stock (item TEXT, count INTEGER); INSERT INTO stock VALUES ('tea', 10)",
        )
        .unwrap();
    let args = |pieces| [script.to_str().unwrap(), "shop.db", "tea", pieces];
    let take = |token: &str, pieces| {
        done(job(&host, "python3", &args(pieces)).env("LEASEHOLD_TOKEN", token))
    };
    let line: Vec<&str> = ["run", "stock", "--", "python3"]
        .into_iter()
        .chain(args("1"))
        .collect();
    let ran = done(job(&host, "leasehold", &line).env_remove("LEASEHOLD_TOKEN")).is(0);
    assert_eq!(ran.out, "9 left\n", "{}", ran.err);
    assert_eq!(take("8", "3").is(0).out, "6 left\n");
    take("7", "2").is(76).says("token 7 is stale");
    take("8", "7").is(1).says("only 6 left");
    let left: i64 = database
        .query_row("SELECT count FROM stock", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 6);
    let store = format!("sqlite://{}/shop.db", host.path().display());
    let seen = host
        .run(&["fence", "show", "stock", "--store", &store])
        .is(0);
    assert!(seen.out.starts_with("stock: has seen 8,"), "{}", seen.out);
}
