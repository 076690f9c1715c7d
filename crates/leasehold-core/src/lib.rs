//! The store-independent core of leasehold.
//!
//! ```text
//!  caller ── Lock ──► acquire ──► Backend / Contender ──► driver ──► server
//!                        │             ▲
//!  caller ◄── Guard ◄── keeper ────────┘   one thread per process: renews every hold, says Lost
//! ```
//!
//! Users depend on the `leasehold` crate, which re-exports what they need; stores implement
//! [`backend`]'s two traits.

mod address;
pub mod advisory;
pub mod backend;
pub mod background;
pub mod clock;
pub mod disk;
pub mod lease;
pub mod url;

mod acquire;
mod claim;
mod client;
mod detached;
mod error;
mod guard;
mod hold;
mod holder;
mod keeper;
mod lock;
mod name;
pub mod pem;
pub mod plan;
mod random;
mod renewing;
pub mod session;
#[cfg(feature = "simulated")]
#[doc(hidden)]
pub mod simulated;

pub use address::Address;
pub use backend::{LossReason, Release};
pub use claim::{Claim, Owner, Token};
pub use client::Client;
pub use detached::{Detached, Resumed};
pub use error::{Error, ErrorKind, Result};
pub use guard::{Guard, Held};
pub use holder::{Holder, Identity, Inspection, NOTE_BYTES_MAX};
pub use lease::Drift;
pub use lock::Lock;
pub use name::{NAME_BYTES_MAX, Name};
pub use plan::HoldState;
