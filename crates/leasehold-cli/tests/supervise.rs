//! What `leasehold run` promises of its job, with real processes on a real file.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "supervise/container.rs"]
mod container;
#[path = "supervise/place.rs"]
mod place;
#[path = "supervise/signals.rs"]
mod signals;
#[path = "supervise/stopping.rs"]
mod stopping;
#[path = "supervise/terminal.rs"]
mod terminal;
