//! The resource's side of a lock.
//!
//! A lease alone is no mutual exclusion: a holder that is frozen past its time wakes up in the middle of its work and
//! makes the write it was about to make. Only the resource can refuse it. Every write carries a [`Mark`], its hold's
//! fencing token, and the resource keeps the highest it has [`Seen`]: a write is accepted if its mark is no lower,
//! atomically with the write and as durably as the write.
//!
//! ```
//! use leasehold_fence::{Checked, Mark};
//! use leasehold_fence::file::FencedFile;
//! # fn main() -> leasehold_core::Result<()> {
//! # let folder = std::env::current_dir().unwrap().join("../../target/tmp");
//! # let folder = std::env::var_os("CARGO_TARGET_TMPDIR").map_or(folder, Into::into);
//! # std::fs::create_dir_all(&folder).unwrap();
//! # let path = folder.join(format!("stock-{}.json", std::process::id()));
//! let stock = FencedFile::at(&path)?;
//! let (older, newer): (Mark, Mark) = ("6".parse()?, "7".parse()?);
//! assert_eq!(stock.replace(newer, b"{\"left\": 9}")?, Checked::Accepted);
//! match stock.replace(older, b"{\"left\": 8}")? {
//!     Checked::Accepted => unreachable!(),
//!     Checked::Stale(stale) => assert_eq!(stale.to_string(), "stale: 7 has been seen, and this write has 6"),
//! }
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! - [`etcd`]: the parts of a transaction, for any client.
//! - [`file`](mod@file): a file, replaced whole.
//! - [`sql`]: the statements for the caller's own transaction, in any language.
//! - `mysql`, `postgres`, `sqlite`, `sqlx`, `redis`: the same for the drivers of these names; each is a feature.
//! - [`Pass`], [`Key`]: a token on its way from the holder to the resource.
//!
//! When to ask, and what follows when something fails: the crate's README.

pub mod etcd;
pub mod file;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;

mod digits;
mod key;
mod mark;
#[cfg(any(feature = "postgres", feature = "sqlx"))]
mod on_postgres;
mod pass;

pub use leasehold_core::{Error, ErrorKind, Name, Result, Token};

pub use key::Key;
pub use mark::{Checked, Mark, Seen, Stale};
pub use pass::Pass;
