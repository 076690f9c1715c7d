//! The tests on real servers, in one program: each program more takes its time to build.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod access;
mod cluster;
mod cluster_slots;
mod common;
mod faults;
mod interop;
mod keys;
mod readme;
mod redlock;
mod redlock_needs;
mod sentinel;
mod tls;
mod waiting;
mod wrong_server;

#[test]
fn agent() {
    common::agent();
}
