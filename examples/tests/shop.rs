//! A shop's database, and the programs that work in it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold_testkit::servers::Postgres;
use rusqlite::Connection;
use tempfile::TempDir;

/// Who is slow in a transaction of SQLite: some seconds of counting.
const COUNTING: &str = "SELECT count(*) FROM (WITH RECURSIVE n(i) AS \
    (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000000) SELECT i FROM n)";

pub(crate) enum Shop {
    Sqlite(TempDir),
    Postgres(Postgres),
}

impl Shop {
    /// One in SQLite and one in PostgreSQL, with these tables.
    pub(crate) fn each(tables: &str) -> [Self; 2] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let shops = [
            Self::Sqlite(folder),
            Self::Postgres(Postgres::start().unwrap()),
        ];
        for shop in &shops {
            shop.change(tables);
        }
        shops
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite://{}/shop.db", folder.path().display()),
            Self::Postgres(server) => server.url(),
        }
    }

    fn sqlite(folder: &TempDir) -> Connection {
        let database = Connection::open(folder.path().join("shop.db")).unwrap();
        database.busy_timeout(Duration::from_secs(60)).unwrap();
        database
    }

    pub(crate) fn change(&self, sql: &str) {
        match self {
            Self::Sqlite(folder) => Self::sqlite(folder).execute_batch(sql).unwrap(),
            Self::Postgres(server) => drop(server.query(sql).unwrap()),
        }
    }

    /// The one number that this selects.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        match self {
            Self::Sqlite(folder) => Self::sqlite(folder)
                .query_row(sql, [], |row| row.get(0))
                .unwrap(),
            Self::Postgres(server) => server.query(sql).unwrap().trim().parse().unwrap(),
        }
    }

    /// The line of an example's README, on this shop: its program is the one that was built for this test.
    pub(crate) fn line(&self, example: &str, program: &str) -> Command {
        let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join(example);
        let readme = fs::read_to_string(readme.join("README.md")).unwrap();
        let begin =
            format!("cargo run -p leasehold-examples --bin {example} -- sqlite:///tmp/shop.db");
        let line = readme.lines().find_map(|line| line.strip_prefix(&begin));
        let mut command = Command::new(program);
        command.arg(self.url());
        let words = line.unwrap().split_whitespace();
        command.args(words.map(|word| match word {
            "sqlite:///tmp/locks.db" => self.url().replace("shop.db", "locks.db"),
            word => word.to_owned(),
        }));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Kills a program within its transaction, at the first row that it writes to this table.
    pub(crate) fn kill_in_transaction(&self, table: &str, program: &mut Command) {
        self.change(&match self {
            Self::Sqlite(_) => format!(
                "CREATE TRIGGER slow_insert BEFORE INSERT ON {table} BEGIN {COUNTING}; END;
                CREATE TRIGGER slow_update BEFORE UPDATE ON {table} BEGIN {COUNTING}; END"
            ),
            Self::Postgres(_) => format!(
                "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
                    $$BEGIN PERFORM pg_sleep(3); RETURN NEW; END$$;
                CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION slow()"
            ),
        });
        let mut child = program.spawn().unwrap();
        while !self.is_writing() {
            assert_eq!(child.try_wait().unwrap(), None, "it wasn't slow");
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        self.change(&match self {
            Self::Sqlite(_) => "DROP TRIGGER slow_insert; DROP TRIGGER slow_update".to_owned(),
            Self::Postgres(_) => format!("DROP TRIGGER slow ON {table}"),
        });
    }

    fn is_writing(&self) -> bool {
        match self {
            Self::Sqlite(folder) => {
                let database = Self::sqlite(folder);
                database.busy_timeout(Duration::ZERO).unwrap();
                // For a moment it is locked when a table is made, too.
                (0..20).all(|_| {
                    std::thread::sleep(Duration::from_millis(10));
                    database.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
                })
            }
            Self::Postgres(_) => {
                let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
                self.number(asleep) > 0
            }
        }
    }
}

/// Starts so many at once; answers what came of them.
pub(crate) fn at_once(count: usize, mut command: impl FnMut() -> Command) -> Vec<Output> {
    let children: Vec<Child> = (0..count).map(|_| command().spawn().unwrap()).collect();
    let ended = children.into_iter().map(Child::wait_with_output);
    ended.map(Result::unwrap).collect()
}

/// What it printed, if it succeeded.
#[track_caller]
pub(crate) fn out(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}
