//! Builds the command and the benchmarks, which are a workspace of their own, and runs them.

use std::path::PathBuf;
use std::process::Command;

use crate::parts::{cargo_path, succeed};
use crate::tree;

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| tree::root().join("target"), PathBuf::from);
    let cargo = |verb| {
        let mut command = Command::new(cargo_path());
        command
            .args([verb, "--release", "--quiet", "--target-dir"])
            .arg(&target);
        command
    };
    // With the stores that are measured, whatever the command has by default.
    let stores = "leasehold/sqlite,leasehold/redis,leasehold/etcd";
    succeed(cargo("build").args(["--package", "leasehold-cli", "--features", stores]))?;
    succeed(
        cargo("run")
            .args(["--manifest-path", "bench/Cargo.toml"])
            .args(["--package", "leasehold-bench", "--", "bench"])
            .arg(&target)
            .args(words),
    )
}
