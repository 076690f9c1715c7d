//! A fence in etcd, for any client: the parts of a transaction that writes only for the newest.
//!
//! The mark is the value of a key beside what it guards, in 30 digits, epoch and token: etcd compares values by their
//! bytes, which are in the marks' order. A comparison of a key that isn't there fails, so the question is whether a newer
//! one *has* been there, and the writes are what is done otherwise:
//!
//! ```text
//! compare   value of key(stock) > text(mark)
//! then      get key(stock)                               it is stale: read(value) says what has been seen
//! else      put key(stock) text(mark), and the writes    it is accepted
//! ```
//!
//! [`read`] makes of a value what has been seen, and [`Seen::check`] of that whether a mark is stale. Without writes it is
//! the check that comes before reading. With `Seen::new(epoch, None)` for the mark it begins an epoch.
//!
//! ```
//! use leasehold_core::Name;
//! use leasehold_fence::{Mark, Seen, etcd};
//!
//! let (stock, mark): (Name, Mark) = ("stock".parse()?, "41".parse()?);
//! assert_eq!(etcd::key(&stock), "leasehold/fence/stock");
//! assert_eq!(etcd::text(mark), "000000000000000000000000000041");
//! assert_eq!(etcd::read(b"000000000000000000000000000041")?, mark.into());
//! assert_eq!(etcd::text(Seen::new(3, None)), "000000000300000000000000000000");
//! # Ok::<(), leasehold_core::Error>(())
//! ```

use leasehold_core::{Error, ErrorKind, Name, Result};

use crate::digits;
use crate::mark::Seen;

/// The key of a resource's mark.
#[must_use]
pub fn key(resource: &Name) -> String {
    format!("leasehold/fence/{resource}")
}

/// A mark, or the beginning of an epoch, as it is compared and put.
#[must_use]
pub fn text(mark: impl Into<Seen>) -> String {
    digits::write(mark.into())
}

/// What the value of a mark's key says.
///
/// # Errors
/// `Unsupported` for a value that is no mark: somebody else has put it.
pub fn read(value: &[u8]) -> Result<Seen> {
    let seen = std::str::from_utf8(value).ok().and_then(digits::read);
    seen.ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "the key of the mark, leasehold/fence/…, has a value that is no mark, so nobody can tell which writes are \
             stale; delete it, if older writes may pass again, or choose another name",
        )
    })
}
