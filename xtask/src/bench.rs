//! Builds the command and the benchmarks, which are a workspace of their own, and runs them.

use std::path::PathBuf;
use std::process::Command;

use crate::parts::{cargo, cargo_path, succeed};
use crate::tree;

/// What of the benchmarks can be wrong without anything being measured.
pub(crate) fn check() -> Result<(), String> {
    let target = target();
    let target = target.to_string_lossy();
    for manifest in ["bench/Cargo.toml", "bench/peers/rust/Cargo.toml"] {
        let place = [
            "--locked",
            "--manifest-path",
            manifest,
            "--target-dir",
            &target,
        ];
        let deny = ["--all-targets", "--", "-Dwarnings"];
        cargo(&[&["clippy"], &place[..], &deny].concat())?;
    }
    let place = [
        "--locked",
        "--manifest-path",
        "bench/Cargo.toml",
        "--target-dir",
        &target,
    ];
    cargo(&[&["test", "--workspace"], &place[..]].concat())
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree::root().join("target"), PathBuf::from)
}

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let target = target();
    let cargo = |verb| {
        let mut command = Command::new(cargo_path());
        command
            .args([verb, "--release", "--quiet", "--target-dir"])
            .arg(&target);
        command
    };
    // With the stores that are measured, whatever the command has by default. Writes are measured without it.
    let stores = "leasehold/sqlite,leasehold/redis,leasehold/etcd,leasehold/zookeeper,leasehold/consul,leasehold/postgres,leasehold/mysql";
    if !matches!(words.first(), Some(&("fence" | "once"))) {
        succeed(cargo("build").args(["--package", "leasehold-cli", "--features", stores]))?;
    }
    succeed(
        cargo("run")
            .args(["--manifest-path", "bench/Cargo.toml"])
            .args(["--package", "leasehold-bench", "--", "bench"])
            .arg(&target)
            .args(words),
    )
}
