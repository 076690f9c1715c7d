//! What every store is tested with.
//!
//! - [`conformance`]: one suite that every store runs, so that its promises hold on every store.
//! - [`clusters`]: what becomes of a hold when members of a cluster fail.
//! - [`steps`]: what tests of a store do again and again.
//! - [`freezing`]: processes stopped where they stand.
//! - [`history`]: checks what the holders of a lock saw.
//! - [`servers`]: real servers, and a proxy to cut them off; [`program`]: clients of other makes.
//! - [`sim`]: a world of clocks, networks and hosts that a seed replays exactly.
//!
//! The suite runs real processes: it starts the test executable again as a worker, which can be stopped and
//! killed like any program that holds a lock.

pub mod clusters;
pub mod conformance;
pub mod freezing;
pub mod history;
pub mod program;
pub mod readme;
pub mod servers;
pub mod sim;
pub mod steps;

mod process;
mod protocol;
mod tools;
mod worker;
