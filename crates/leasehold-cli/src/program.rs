//! Finds the job's program before the lock is taken.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};

/// Where programs are without a PATH: what the C library searches then.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// The file that will be run.
pub(crate) fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let shown = program.to_string_lossy();
    if program.as_bytes().contains(&b'/') {
        return match look(Path::new(program)) {
            Found::Executable => Ok(program.into()),
            Found::Refused(why) => Err(refused(&shown, why)),
            Found::Nothing => Err(Failure::program(
                NOT_FOUND,
                format!("the command {shown} was not found"),
            )),
        };
    }
    let path = path.unwrap_or(OsStr::new(PATH_DEFAULT));
    let mut passed_over = None;
    for folder in std::env::split_paths(path).filter(|_| !program.is_empty()) {
        // An empty entry means the working directory.
        let file = if folder.as_os_str().is_empty() {
            Path::new(".").join(program)
        } else {
            folder.join(program)
        };
        match look(&file) {
            Found::Executable => return Ok(file),
            Found::Refused(why) => passed_over = passed_over.or(Some((file, why))),
            Found::Nothing => {}
        }
    }
    Err(match passed_over {
        Some((file, why)) => refused(&file.to_string_lossy(), why),
        None => Failure::program(
            NOT_FOUND,
            format!(
                "the command \"{shown}\" was not found in PATH ({})",
                path.to_string_lossy()
            ),
        ),
    })
}

enum Found {
    Executable,
    Refused(&'static str),
    Nothing,
}

fn look(file: &Path) -> Found {
    match std::fs::metadata(file) {
        Ok(metadata) if metadata.is_dir() => Found::Refused("it is a folder"),
        Ok(_) => match accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS) {
            Ok(()) => Found::Executable,
            Err(_) => Found::Refused("it is not executable"),
        },
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Found::Refused("its folder can't be searched")
        }
        Err(_) => Found::Nothing,
    }
}

fn refused(file: &str, why: &str) -> Failure {
    Failure::program(
        NOT_EXECUTABLE,
        format!("the command {file} can't be run: {why}"),
    )
}
