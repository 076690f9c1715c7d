//! Distributed locks on the coordination store you already run.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # async fn example() -> leasehold::Result<()> {
//! let client = leasehold::connect("sqlite:///var/lib/leasehold/locks.db").await?;
//! let lock = client.lock("jobs/report")?.ttl(Duration::from_secs(30));
//! if let Some(guard) = lock.try_acquire().await? {
//!     println!("held, fencing token {}", guard.token());
//!     guard.release().await?;
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A lease alone is no mutual exclusion: a holder that is paused past its TTL wakes up believing. The
//! [`Guard`] tells it at once, and the [`Token`] lets the resource refuse what it writes until then.

mod stores;

pub use leasehold_core::url::StoreUrl;
pub use leasehold_core::{
    Client, Detached, Drift, Error, ErrorKind, Guard, Held, HoldState, Holder, Identity,
    Inspection, Lock, LossReason, Name, Owner, Release, Result, Resumed, Token,
};
pub use stores::{connect, connect_to};

/// What only etcd can do.
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use leasehold_etcd::IsOwner;
}

/// What only MySQL and MariaDB have.
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use leasehold_mysql::SCHEMA;
}

/// What only PostgreSQL can do.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use leasehold_postgres::{
        ACQUIRE, Caller, SCHEMA, TOKEN, TRY_ACQUIRE, TransactionLocks, TransactionToken,
    };
}

/// What only Redlock can do.
#[cfg(feature = "redis")]
pub mod redlock {
    pub use leasehold_redis::rejoin;
}

/// What a store is, can do, and answers to an operator.
pub mod store {
    pub use leasehold_core::backend::{
        BackendInfo, Broken, Capabilities, Finding, TokenGrade, Verdict,
    };
}
