//! The queue and the lease on Redis under simulated clocks, networks and hosts.
//!
//! What is simulated is what runs: the scripts in a Lua 5.1 interpreter over a small server in memory, the
//! attempt's and the hold's state machines as shipped. A run is made of its seed alone. A seed that fails is
//! replayed, with all that happened in it, by
//! the command that its failure prints.

mod checks;
mod client;
mod desk;
mod hold;
mod host;
pub(crate) mod lua;
mod mutants;
mod nemesis;
mod poller;
pub(crate) mod scenario;
mod schedules;
mod seeds;
pub(crate) mod store;
mod world;
