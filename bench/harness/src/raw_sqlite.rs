//! The least that a durable lock with a counter in an SQLite file can be.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use leasehold_bench_load::{Result, Subject, text};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS locks (name TEXT PRIMARY KEY, token INTEGER NOT NULL, owner TEXT) WITHOUT ROWID;";
const TAKE: &str = "INSERT INTO locks VALUES (?1, 1, 'owner')
    ON CONFLICT DO UPDATE SET token = token + 1, owner = 'owner' WHERE owner IS NULL RETURNING token";
const FREE: &str = "UPDATE locks SET owner = NULL WHERE name = ?1 AND owner = 'owner'";

/// One connection.
pub(crate) struct Raw(Connection);

impl Raw {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path).map_err(text)?;
        connection
            .busy_timeout(Duration::from_secs(10))
            .map_err(text)?;
        connection.execute_batch(SETTINGS).map_err(text)?;
        Ok(Self(connection))
    }

    pub(crate) fn acquire(&self, name: &str) -> Result<()> {
        self.transaction(|raw| {
            let mut take = raw.0.prepare_cached(TAKE)?;
            take.query_row(params![name], |row| row.get(0))
                .map(|_: i64| ())
        })
    }

    pub(crate) fn release(&self, name: &str) -> Result<()> {
        self.transaction(|raw| {
            raw.0.prepare_cached(FREE)?.execute(params![name])?;
            Ok(())
        })
    }

    fn transaction(&self, work: impl FnOnce(&Self) -> rusqlite::Result<()>) -> Result<()> {
        let run = |sql| self.0.prepare_cached(sql)?.execute([]);
        run("BEGIN IMMEDIATE").map_err(text)?;
        work(self).map_err(text)?;
        run("COMMIT").map_err(text)?;
        Ok(())
    }
}

/// Four connections on threads of their own; a name always goes to the same one.
pub(crate) struct RawSqlite(Vec<mpsc::Sender<Job>>);

struct Job {
    name: String,
    takes: bool,
    done: oneshot::Sender<Result<()>>,
}

impl RawSqlite {
    pub(crate) fn start(url: &str) -> Result<Self> {
        let path = format!("{}.raw", url.trim_start_matches("sqlite://"));
        let mut threads = Vec::new();
        for _ in 0..4 {
            let raw = Raw::open(path.as_ref())?;
            let (sender, jobs) = mpsc::channel::<Job>();
            std::thread::spawn(move || {
                for job in jobs {
                    let done = if job.takes {
                        raw.acquire(&job.name)
                    } else {
                        raw.release(&job.name)
                    };
                    // A worker that has ended wants no answer.
                    let _ = job.done.send(done);
                }
            });
            threads.push(sender);
        }
        Ok(Self(threads))
    }

    async fn ask(&self, name: &str, takes: bool) -> Result<()> {
        let at = name.bytes().map(usize::from).sum::<usize>() % self.0.len();
        let (done, answer) = oneshot::channel();
        let name = name.to_owned();
        self.0[at].send(Job { name, takes, done }).map_err(text)?;
        answer.await.map_err(text)?
    }
}

impl Subject for RawSqlite {
    type Hold = String;

    async fn acquire(&self, name: &str) -> Result<String> {
        self.ask(name, true).await?;
        Ok(name.to_owned())
    }

    async fn release(&self, name: String) -> Result<()> {
        self.ask(&name, false).await
    }
}
