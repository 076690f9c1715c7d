//! A database with records and with what the work writes, a log.

use std::time::Duration;

use leasehold_core::Name;
use leasehold_fence::Mark;
use leasehold_once::{Begun, Finished, Once, postgres, sqlite};
use rusqlite::Connection;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

const LOG: &str = "INSERT INTO log VALUES ('worked')";

pub(crate) enum Database {
    Sqlite(Connection),
    Postgres(Runtime, Client),
}

pub(crate) fn once() -> Once {
    Once::new(Name::new("charge/4711").unwrap())
}

impl Database {
    /// Opens `sqlite:PATH` or `postgres:URL`.
    pub(crate) fn open(place: &str) -> Self {
        match place.split_once(':').unwrap() {
            ("sqlite", path) => {
                let database = Connection::open(path).unwrap();
                database.busy_timeout(Duration::from_secs(60)).unwrap();
                Self::Sqlite(database)
            }
            ("postgres", url) => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                let client = runtime.block_on(async {
                    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
                    tokio::spawn(connection);
                    client
                });
                Self::Postgres(runtime, client)
            }
            other => panic!("no place {other:?}"),
        }
    }

    pub(crate) fn prepare(&self) {
        let log = "CREATE TABLE log (what TEXT)";
        match self {
            Self::Sqlite(database) => {
                database.execute_batch(log).unwrap();
                sqlite::prepare(database).unwrap();
            }
            Self::Postgres(runtime, client) => runtime.block_on(async {
                client.batch_execute(log).await.unwrap();
                postgres::prepare(client).await.unwrap();
            }),
        }
    }

    /// Begins, in a transaction of its own.
    pub(crate) fn begin(&mut self, mark: Mark) -> Begun {
        match self {
            Self::Sqlite(database) => {
                let transaction = database.transaction().unwrap();
                let begun = sqlite::begin(&transaction, &once(), mark).unwrap();
                transaction.commit().unwrap();
                begun
            }
            Self::Postgres(runtime, client) => runtime.block_on(async {
                let transaction = client.transaction().await.unwrap();
                let begun = postgres::begin(&transaction, &once(), mark).await.unwrap();
                transaction.commit().await.unwrap();
                begun
            }),
        }
    }

    /// Finishes, in a transaction of its own.
    pub(crate) fn finish(&mut self, mark: Mark, result: &[u8]) -> Finished {
        match self {
            Self::Sqlite(database) => {
                let transaction = database.transaction().unwrap();
                let finished = sqlite::finish(&transaction, &once(), mark, result).unwrap();
                transaction.commit().unwrap();
                finished
            }
            Self::Postgres(runtime, client) => runtime.block_on(async {
                let transaction = client.transaction().await.unwrap();
                let finished = postgres::finish(&transaction, &once(), mark, result).await;
                transaction.commit().await.unwrap();
                finished.unwrap()
            }),
        }
    }

    /// Begins, works and finishes in one transaction. `between` is after the work.
    pub(crate) fn whole(&mut self, mark: Mark, between: impl FnOnce()) -> Begun {
        let result = mark.to_string();
        match self {
            Self::Sqlite(database) => {
                let transaction = database.transaction().unwrap();
                let begun = sqlite::begin(&transaction, &once(), mark).unwrap();
                if begun == Begun::First {
                    transaction.execute(LOG, []).unwrap();
                    between();
                    let finished =
                        sqlite::finish(&transaction, &once(), mark, result.as_bytes()).unwrap();
                    assert_eq!(finished, Finished::Recorded);
                    transaction.commit().unwrap();
                }
                begun
            }
            Self::Postgres(runtime, client) => runtime.block_on(async {
                let transaction = client.transaction().await.unwrap();
                let begun = postgres::begin(&transaction, &once(), mark).await.unwrap();
                if begun == Begun::First {
                    transaction.execute(LOG, &[]).await.unwrap();
                    between();
                    let finished =
                        postgres::finish(&transaction, &once(), mark, result.as_bytes()).await;
                    assert_eq!(finished.unwrap(), Finished::Recorded);
                    transaction.commit().await.unwrap();
                }
                begun
            }),
        }
    }

    /// How often the work was done.
    pub(crate) fn worked(&self) -> i64 {
        let count = "SELECT count(*) FROM log";
        match self {
            Self::Sqlite(database) => database.query_row(count, [], |row| row.get(0)).unwrap(),
            Self::Postgres(runtime, client) => {
                runtime.block_on(async { client.query_one(count, &[]).await.unwrap().get(0) })
            }
        }
    }
}
