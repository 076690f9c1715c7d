//! The tests on real servers, in one program: each program more takes its time to build.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod access;
mod common;
mod faults;
mod interop;
mod proxy;
mod readme;
mod settings;
mod sharing;
mod tries;
