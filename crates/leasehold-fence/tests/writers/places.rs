//! A number at each kind of resource, written with a fence and without.

use std::fs;
use std::time::Duration;

use leasehold_core::Name;
use leasehold_fence::file::FencedFile;
use leasehold_fence::{Checked, Mark, Seen, sqlite};
use rusqlite::{Connection, TransactionBehavior};

/// A resource that holds a number, zero at first.
pub(crate) trait Place {
    fn read(&mut self) -> u64;
    fn write_unfenced(&mut self, number: u64);
    fn check(&mut self, mark: Mark) -> Checked;
    fn write(&mut self, mark: Mark, number: u64) -> Checked;
    fn seen(&mut self) -> Seen;
}

/// Opens `file:PATH`, `sqlite:PATH`, `mysql:URL`, `mariadb:URL`, `postgres:URL` or `redis:URL`.
pub(crate) fn open(place: &str) -> Box<dyn Place> {
    match place.split_once(':').unwrap() {
        ("file", path) => Box::new(File(FencedFile::at(path).unwrap())),
        ("sqlite", path) => Box::new(Sqlite::open(path)),
        ("mysql" | "mariadb", url) => Box::new(mysql::Mysql::open(url)),
        ("postgres", url) => Box::new(postgres::Postgres::open(url)),
        ("redis", url) => Box::new(redis::Redis::open(url)),
        other => panic!("no place {other:?}"),
    }
}

fn stock() -> Name {
    Name::new("stock").unwrap()
}

struct File(FencedFile);

/// Lines enough that a write which isn't whole shows.
const LINES: usize = 5000;

fn lines(number: u64) -> String {
    format!("{number}\n").repeat(LINES)
}

impl Place for File {
    fn read(&mut self) -> u64 {
        let Ok(text) = fs::read_to_string(self.0.path()) else {
            return 0;
        };
        let number = text.lines().next().unwrap().parse().unwrap();
        assert_eq!(text, lines(number), "the file isn't whole");
        number
    }

    fn write_unfenced(&mut self, number: u64) {
        fs::write(self.0.path(), lines(number)).unwrap();
    }

    fn check(&mut self, mark: Mark) -> Checked {
        self.0.check(mark).unwrap()
    }

    fn write(&mut self, mark: Mark, number: u64) -> Checked {
        self.0.replace(mark, lines(number).as_bytes()).unwrap()
    }

    fn seen(&mut self) -> Seen {
        self.0.seen().unwrap()
    }
}

struct Sqlite(Connection);

impl Sqlite {
    fn open(path: &str) -> Self {
        let database = Connection::open(path).unwrap();
        database.busy_timeout(Duration::from_secs(60)).unwrap();
        let tables = "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER); \
                      INSERT OR IGNORE INTO stock VALUES ('tea', 0)";
        database.execute_batch(tables).unwrap();
        sqlite::prepare(&database).unwrap();
        Self(database)
    }

    fn begin(&mut self) -> rusqlite::Transaction<'_> {
        self.0
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap()
    }
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap()
}

const UPDATE: &str = "UPDATE stock SET count = ?1 WHERE item = 'tea'";

impl Place for Sqlite {
    fn read(&mut self) -> u64 {
        let count = "SELECT count FROM stock WHERE item = 'tea'";
        let count: i64 = self.0.query_row(count, [], |row| row.get(0)).unwrap();
        u64::try_from(count).unwrap()
    }

    fn write_unfenced(&mut self, number: u64) {
        assert_eq!(self.0.execute(UPDATE, [integer(number)]).unwrap(), 1);
    }

    fn check(&mut self, mark: Mark) -> Checked {
        let transaction = self.begin();
        let checked = sqlite::check(&transaction, &stock(), mark).unwrap();
        transaction.commit().unwrap();
        checked
    }

    fn write(&mut self, mark: Mark, number: u64) -> Checked {
        let transaction = self.begin();
        let checked = sqlite::check(&transaction, &stock(), mark).unwrap();
        if checked == Checked::Accepted {
            assert_eq!(transaction.execute(UPDATE, [integer(number)]).unwrap(), 1);
            transaction.commit().unwrap();
        }
        checked
    }

    fn seen(&mut self) -> Seen {
        sqlite::seen(&self.0, &stock()).unwrap()
    }
}

mod redis {
    use leasehold_fence::redis;
    use leasehold_fence::{Checked, Mark, Seen};
    use tokio::runtime::Runtime;

    use super::{Place, stock};

    pub(super) struct Redis {
        runtime: Runtime,
        connection: ::redis::aio::MultiplexedConnection,
    }

    impl Redis {
        pub(super) fn open(url: &str) -> Self {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let client = ::redis::Client::open(url).unwrap();
            let connection = runtime
                .block_on(client.get_multiplexed_async_connection())
                .unwrap();
            Self {
                runtime,
                connection,
            }
        }
    }

    const COUNT: &str = "count of {stock}";

    impl Place for Redis {
        fn read(&mut self) -> u64 {
            let get = ::redis::cmd("GET").arg(COUNT).to_owned();
            let held: Option<u64> = self
                .runtime
                .block_on(get.query_async(&mut self.connection))
                .unwrap();
            held.unwrap_or(0)
        }

        fn write_unfenced(&mut self, number: u64) {
            let set = ::redis::cmd("SET").arg(COUNT).arg(number).to_owned();
            self.runtime
                .block_on(set.exec_async(&mut self.connection))
                .unwrap();
        }

        fn check(&mut self, mark: Mark) -> Checked {
            self.runtime
                .block_on(redis::check(&mut self.connection, &stock(), mark))
                .unwrap()
        }

        fn write(&mut self, mark: Mark, number: u64) -> Checked {
            let stock = stock();
            let set = redis::set(&mut self.connection, &stock, mark, COUNT, number);
            self.runtime.block_on(set).unwrap()
        }

        fn seen(&mut self) -> Seen {
            self.runtime
                .block_on(redis::seen(&mut self.connection, &stock()))
                .unwrap()
        }
    }
}

mod mysql {
    use leasehold_fence::mysql;
    use leasehold_fence::{Checked, Mark, Seen};
    use mysql_async::prelude::Queryable as _;
    use mysql_async::{Conn, Transaction, TxOpts};
    use tokio::runtime::Runtime;

    use super::{Place, integer, stock};

    pub(super) struct Mysql {
        runtime: Runtime,
        conn: Conn,
    }

    const TABLES: [&str; 4] = [
        "CREATE DATABASE IF NOT EXISTS app",
        "USE app",
        "CREATE TABLE IF NOT EXISTS stock (item VARCHAR(9) PRIMARY KEY, count BIGINT) ENGINE=InnoDB",
        "INSERT IGNORE INTO stock VALUES ('tea', 0)",
    ];
    const UPDATE: &str = "UPDATE stock SET count = ? WHERE item = 'tea'";

    impl Mysql {
        pub(super) fn open(url: &str) -> Self {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let conn = runtime.block_on(async {
                let mut conn = Conn::from_url(url).await.unwrap();
                for statement in TABLES {
                    conn.query_drop(statement).await.unwrap();
                }
                mysql::prepare(&mut conn).await.unwrap();
                conn
            });
            Self { runtime, conn }
        }
    }

    /// As a caller's own transaction is by default: REPEATABLE READ.
    async fn begin(conn: &mut Conn) -> Transaction<'_> {
        conn.start_transaction(TxOpts::default()).await.unwrap()
    }

    impl Place for Mysql {
        fn read(&mut self) -> u64 {
            let count = "SELECT count FROM stock WHERE item = 'tea'";
            let count = self.runtime.block_on(self.conn.query_first(count)).unwrap();
            count.unwrap()
        }

        fn write_unfenced(&mut self, number: u64) {
            let update = self.conn.exec_drop(UPDATE, (integer(number),));
            self.runtime.block_on(update).unwrap();
        }

        fn check(&mut self, mark: Mark) -> Checked {
            self.runtime.block_on(async {
                let mut transaction = begin(&mut self.conn).await;
                let checked = mysql::check(&mut transaction, &stock(), mark).await;
                transaction.commit().await.unwrap();
                checked.unwrap()
            })
        }

        fn write(&mut self, mark: Mark, number: u64) -> Checked {
            self.runtime.block_on(async {
                let mut transaction = begin(&mut self.conn).await;
                let checked = mysql::check(&mut transaction, &stock(), mark)
                    .await
                    .unwrap();
                if checked == Checked::Accepted {
                    let update = transaction.exec_drop(UPDATE, (integer(number),));
                    update.await.unwrap();
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
                checked
            })
        }

        fn seen(&mut self) -> Seen {
            self.runtime
                .block_on(mysql::seen(&mut self.conn, &stock()))
                .unwrap()
        }
    }
}

mod postgres {
    use leasehold_fence::postgres;
    use leasehold_fence::{Checked, Mark, Seen};
    use tokio::runtime::Runtime;
    use tokio_postgres::{Client, NoTls};

    use super::{Place, integer, stock};

    pub(super) struct Postgres {
        runtime: Runtime,
        client: Client,
    }

    const TABLES: &str = "CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, count bigint); \
        INSERT INTO stock VALUES ('tea', 0) ON CONFLICT DO NOTHING";
    const UPDATE: &str = "UPDATE stock SET count = $1 WHERE item = 'tea'";

    impl Postgres {
        pub(super) fn open(url: &str) -> Self {
            // A thread of its own for the connection, which works while nobody blocks on the runtime.
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let client = runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
                tokio::spawn(connection);
                // Made by several at once, it fails for all but one.
                while client.batch_execute(TABLES).await.is_err() {}
                postgres::prepare(&client).await.unwrap();
                client
            });
            Self { runtime, client }
        }
    }

    impl Place for Postgres {
        fn read(&mut self) -> u64 {
            let count = "SELECT count FROM stock WHERE item = 'tea'";
            let row = self
                .runtime
                .block_on(self.client.query_one(count, &[]))
                .unwrap();
            u64::try_from(row.get::<_, i64>(0)).unwrap()
        }

        fn write_unfenced(&mut self, number: u64) {
            let number = integer(number);
            assert_eq!(
                self.runtime
                    .block_on(self.client.execute(UPDATE, &[&number]))
                    .unwrap(),
                1
            );
        }

        fn check(&mut self, mark: Mark) -> Checked {
            self.runtime.block_on(async {
                let transaction = self.client.transaction().await.unwrap();
                let checked = postgres::check(&transaction, &stock(), mark).await.unwrap();
                transaction.commit().await.unwrap();
                checked
            })
        }

        fn write(&mut self, mark: Mark, number: u64) -> Checked {
            self.runtime.block_on(async {
                let transaction = self.client.transaction().await.unwrap();
                let checked = postgres::check(&transaction, &stock(), mark).await.unwrap();
                if checked == Checked::Accepted {
                    let number = integer(number);
                    assert_eq!(transaction.execute(UPDATE, &[&number]).await.unwrap(), 1);
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
                checked
            })
        }

        fn seen(&mut self) -> Seen {
            self.runtime
                .block_on(postgres::seen(&self.client, &stock()))
                .unwrap()
        }
    }
}
