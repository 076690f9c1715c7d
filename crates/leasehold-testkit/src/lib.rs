//! What every store is tested with.
//!
//! - [`servers`]: real servers, and a proxy to cut them off.

pub mod servers;
