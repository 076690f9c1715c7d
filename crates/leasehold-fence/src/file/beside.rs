//! The mark beside a file, and the lock on it.
//!
//! The file that holds the mark is the one that is locked. A new mark comes in a new file, which is locked before it
//! takes the other's name: so whoever has locked the file that has the name now is alone, and whoever waited for the old
//! one finds out and waits for the new one.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result, Token, clock};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::disk;
use crate::mark::{Seen, canonical};

/// How long another writer is waited for, and the pause between two looks.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// More than a mark takes.
const BYTES_MAX: u64 = 128;
/// Its own user's, and readable by the group: who may write in the folder and read this can write the file.
const MODE: u32 = 0o640;

/// The mark of a file, locked.
pub(super) struct Beside {
    /// Locked as long as it is open.
    file: File,
    path: PathBuf,
    next: PathBuf,
    seen: Seen,
}

impl Beside {
    /// Locks the mark at `path`, which is made if it is not there; a new one is written to `next` first.
    pub(super) fn lock(path: PathBuf, next: PathBuf) -> Result<Self> {
        let begun = clock::now();
        let mut pause = PAUSE_MIN;
        loop {
            let mut file = open(&path)?;
            match file.try_lock() {
                Ok(()) if has_name(&file, &path)? => {
                    let seen = parse(&mut file, &path)?;
                    return Ok(Self {
                        file,
                        path,
                        next,
                        seen,
                    });
                }
                // Another writer has put a new one in its place.
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(disk::fault("can't lock", &path, error));
                }
            }
            if clock::now().since(begun).steady > PATIENCE {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "another process keeps {} locked and doesn't let go; is a writer stopped in the middle?",
                        path.display()
                    ),
                ));
            }
            std::thread::sleep(pause);
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// The mark.
    pub(super) fn seen(&self) -> Seen {
        self.seen
    }

    /// Puts a higher mark in its place and waits for the disk; the same one is there already.
    pub(super) fn raise(&mut self, seen: Seen) -> Result<()> {
        if seen <= self.seen {
            return Ok(());
        }
        let mut file = disk::create(&self.next, MODE)?;
        if let Ok(replaced) = self.file.metadata() {
            disk::share(&file, &replaced);
        }
        // Nobody else opens it under this name, so there is nothing to wait for.
        file.lock()
            .map_err(|error| disk::fault("can't lock", &self.next, error))?;
        file.write_all(text(seen).as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| disk::fault("can't write", &self.next, error))?;
        fs::rename(&self.next, &self.path)
            .map_err(|error| disk::fault("can't replace", &self.path, error))?;
        self.file = file;
        self.seen = seen;
        disk::confirm(&self.path)
    }
}

/// The mark at a path, without a lock: a mark is replaced whole.
pub(super) fn read(path: &Path) -> Result<Seen> {
    match existing(path)? {
        Some(mut file) => parse(&mut file, path),
        None => Ok(Seen::default()),
    }
}

/// The file at a path, if there is one, to be read. Where there is something else it isn't waited for: a pipe would be for
/// ever.
fn existing(path: &Path) -> Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let is_link = Some(Errno::LOOP.raw_os_error());
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == is_link => return Err(no_file(path)),
        Err(error) => return Err(disk::fault("can't open", path, error)),
    };
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(Some(file)),
        Ok(_) => Err(no_file(path)),
        Err(error) => Err(disk::fault("can't look at", path, error)),
    }
}

fn no_file(path: &Path) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{} is no file, but a link or something else, and the mark is kept there in a file; remove it",
            path.display()
        ),
    )
}

fn open(path: &Path) -> Result<File> {
    // Written never, only replaced; but a file is made by who may write.
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path);
    match made {
        // Root's first look must not shut out those whose folder it is.
        Ok(made) => {
            if let Ok(folder) = fs::metadata(disk::folder_of(path)) {
                disk::share(&made, &folder);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(disk::fault("can't make", path, error)),
    }
    let gone = || disk::fault("can't open", path, io::ErrorKind::NotFound.into());
    existing(path)?.ok_or_else(gone)
}

/// Whether the path still names this file.
fn has_name(file: &File, path: &Path) -> Result<bool> {
    let identity = |of: &Metadata| (of.dev(), of.ino());
    let ours = file
        .metadata()
        .map_err(|error| disk::fault("can't look at", path, error))?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok(identity(&named) == identity(&ours)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(disk::fault("can't look at", path, error)),
    }
}

fn parse(file: &mut File, path: &Path) -> Result<Seen> {
    let mut held = String::new();
    file.take(BYTES_MAX)
        .read_to_string(&mut held)
        .map_err(|error| disk::fault("can't read", path, error))?;
    if held.is_empty() {
        // Made by the first writer, who got no further.
        return Ok(Seen::default());
    }
    read_text(&held).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} holds no mark, so nobody can tell which writes are stale; with all writers stopped, write \
                 \"epoch N token M\" and a newline into it, no lower than any that was used",
                path.display()
            ),
        )
    })
}

fn text(seen: Seen) -> String {
    let token = seen.token().map_or(0, Token::get);
    format!("epoch {} token {token}\n", seen.epoch())
}

fn read_text(text: &str) -> Option<Seen> {
    let (epoch, token) = text
        .strip_prefix("epoch ")?
        .strip_suffix('\n')?
        .split_once(" token ")?;
    Some(Seen::new(canonical(epoch)?, Token::new(canonical(token)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_mark_is_read_as_none() {
        for text in [
            "x",
            "epoch 0 token 7",
            "epoch 0 token 07\n",
            "epoch 0 token 7\n\n",
            "epoch -1 token 7\n",
            " epoch 0 token 7\n",
            "epoch 0 token 18446744073709551616\n",
            "epoch 4294967296 token 1\n",
        ] {
            assert_eq!(read_text(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_mark_reads_back(epoch in any::<u32>(), token in any::<u64>()) {
            let seen = Seen::new(epoch, Token::new(token));
            prop_assert_eq!(read_text(&text(seen)), Some(seen));
        }
    }
}
