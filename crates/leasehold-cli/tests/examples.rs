//! The examples around the command, each with the failure that it guards against. Those in Rust have their tests beside
//! them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "examples/fence.rs"]
mod fence;
#[path = "examples/jobs.rs"]
mod jobs;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Host;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name)
}

/// The host, with `leasehold` on the path of its jobs.
fn host(host: Host) -> Host {
    let bin = host.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_leasehold"), bin.join("leasehold")).unwrap();
    host
}

/// A command on a host.
fn job(host: &Host, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap();
    command
        .args(args)
        .env("PATH", format!("{}/bin:{path}", host.path().display()))
        .env("HOME", host.path())
        .env("LEASEHOLD_STORE", host.store())
        .current_dir(host.path());
    command
}
