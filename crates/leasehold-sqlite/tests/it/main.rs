//! The tests on real files, in one program: each program more takes its time to build.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod common;
mod files;
mod processes;
mod readme;
mod store;

#[test]
fn agent() {
    common::agent();
}
