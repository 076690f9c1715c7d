//! The tests on real servers, in one program: each program more takes its time to build.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod access;
mod common;
mod failover;
mod faults;
mod interop;
mod lease_by_tcp;
mod pooler;
mod readme;
mod sharing;
mod sqlx;
mod transactions;
mod tries;
