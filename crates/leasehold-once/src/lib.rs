//! Work that must not happen twice.
//!
//! A lock keeps two workers apart while both are there. It doesn't know what was done before: a job that ended, and is
//! started again, holds the lock and does it all again. A [`Once`] is a record under a key, in a database: who begins it
//! first works and stores what came of it, who repeats it gets that. A worker that crashed is taken over by one with a
//! newer token, and can't store anything when it wakes up after all.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_fence::Pass;
//! use leasehold_once::{Begun, Once, sqlite};
//! # let mut database = rusqlite::Connection::open_in_memory()?;
//! # database.execute_batch("CREATE TABLE invoices (customer TEXT, cents INTEGER)")?;
//! sqlite::prepare(&database)?;
//! let charge = Once::new("charge/4711/2026-11".parse()?);
//!
//! for hold in ["charges:41", "charges:42"] {
//!     let pass: Pass = hold.parse()?;
//!     let transaction = database.transaction()?;
//!     let receipt = match sqlite::begin(&transaction, &charge, &pass)? {
//!         Begun::First => {
//!             transaction.execute("INSERT INTO invoices VALUES ('4711', 990)", [])?;
//!             let receipt = b"receipt 1".to_vec();
//!             let _ = sqlite::finish(&transaction, &charge, &pass, &receipt)?;
//!             transaction.commit()?;
//!             receipt
//!         }
//!         Begun::Done(success) => success.result,
//!         Begun::Running(attempt) => return Err(format!("{attempt}").into()),
//!         Begun::Stale(stale) => return Err(stale.into()),
//!     };
//!     assert_eq!(receipt, b"receipt 1");
//! }
//! # let count: i64 = database.query_row("SELECT count(*) FROM invoices", [], |row| row.get(0))?;
//! # assert_eq!(count, 1);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! - [`Once`]: a key, how often, and how long it is remembered.
//! - [`sql`]: the statements for the caller's own transaction, in any language.
//! - `mysql`, `postgres`, `sqlite`: the same for `mysql_async`, `tokio-postgres` and `rusqlite`; `redis`: for work that is
//!   elsewhere, records on Redis. Each is a feature.
//!
//! A key belongs to the lock under which it was begun: a [`Pass`](leasehold_fence::Pass) is that lock's name and the token
//! of a hold of it. All times are the database's own clock's: hosts whose clocks differ agree.

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;

mod record;
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod row;

pub use leasehold_core::{Error, ErrorKind, Name, Result};

pub use record::{Begun, Finished, Once, Record, Running, State, Success};
