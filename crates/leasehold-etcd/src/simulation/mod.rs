//! The queue and the leases on etcd under simulated clocks, networks, hosts and members.
//!
//! What decides is what ships: the tries and what their answers mean ([`crate::attempt`]), what ends a place
//! ([`crate::ending`]), what a beat proves ([`crate::beat`]), the places ([`leasehold_core::session::Place`]), the queue
//! ([`crate::queue`]), and the core's plan of a hold. Their requests are carried out by a small etcd in memory: one
//! history of revisions, and members that each have a clock, a term and a leader they know of, which may be an old one.
//!
//! What is around those decisions does input and output, and is written here a second time: the rounds of a try and
//! the wait for a beat (`contender`, `renewal`), the task of a session (`heart`), the watches (`feed`), and how a link
//! turns to the next member. The tests on real clusters are what covers that code. Not covered at all: holds that are
//! extended beyond their session or kept after their release, holds resumed by another process, compacted watches,
//! locks further down of the same name, and clients of another make.
//!
//! A run is made of its seed alone. A seed that fails is replayed, with all that happened in it, by the command that
//! its failure prints.

mod checks;
mod client;
mod cluster;
mod ends;
mod feed;
mod hold;
mod host;
mod member;
mod mutants;
mod nemesis;
mod scenario;
mod seeds;
mod session;
mod tries;
mod world;
