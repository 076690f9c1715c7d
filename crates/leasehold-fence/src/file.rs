//! A file that is replaced whole, by the newest holder alone.
//!
//! The mark is kept in a file beside it, `NAME.fence`, which is also what writers exclude each other by while they
//! compare and replace (`flock`). The order is: lock, compare, write the mark and wait for the disk, write the contents
//! and wait for the disk, rename, wait for the disk. So whoever is killed in between, and when the power fails, there is
//! the old file or the new one, whole, and never a file that is newer than the mark.
//!
//! All of it blocks: within an async runtime it belongs where blocking is allowed.

mod beside;
mod disk;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use leasehold_core::disk::check_local;
use leasehold_core::{Error, ErrorKind, Result};

use crate::mark::{Checked, Mark, Seen};
use beside::Beside;

/// What is kept beside a file: its mark, the mark that takes its place, the contents that take the file's.
const MARK: &str = ".fence";
const NEW_MARK: &str = ".fence.new";
const DATA: &str = ".fence.data";
/// The most that a file's name has on common file systems.
const NAME_BYTES_MAX: usize = 255;
const SUFFIXES: [&str; 3] = [MARK, NEW_MARK, DATA];

/// A file and the mark beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedFile {
    /// Without symbolic links, so that all who name the file agree on the mark.
    path: PathBuf,
}

impl FencedFile {
    /// The file at a path, which need not be there yet; its folder must be. A symbolic link stands for the file that
    /// it leads to.
    ///
    /// # Errors
    /// `Invalid` when there is something else than a file, a link that leads nowhere, a file that by its name is what is
    /// kept beside another, or one of several names (hard links), of which a replacement would reach one; `Unsupported` on a file system that may be shared with another
    /// host; `Unauthorized` or `Unavailable` when it can't be looked at.
    pub fn at(path: impl AsRef<Path>) -> Result<Self> {
        let path = resolve(path.as_ref())?;
        if let Some(suffix) = SUFFIXES.iter().find(|suffix| ends_in(&path, suffix)) {
            let what = format!(
                "{}: what ends in {suffix} is kept beside a fenced file, and can't be one",
                path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let file = Self { path };
        let longest = file.beside(DATA);
        let bytes = longest.file_name().map_or(0, OsStr::len);
        if bytes > NAME_BYTES_MAX {
            let what = format!(
                "the name of {} is too long: what is kept beside it has {bytes} bytes, and the most is {NAME_BYTES_MAX}",
                file.path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        check_local(file.folder())?;
        disk::existing(&file.path)?;
        Ok(file)
    }

    /// The file, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file whole, if no newer holder has been here. Mode, owner and group stay those of the file that is
    /// replaced; access lists and extended attributes don't.
    ///
    /// When it returns, contents and mark are on the disk.
    ///
    /// # Errors
    /// `Unauthorized` when a right is lacking, also that to keep the owner; `Unsupported` when what is beside it holds no
    /// mark; `Unavailable` when another writer doesn't let go of it within seconds, or the disk is full. The file is
    /// the old one then, though the mark may have risen: the same write again is accepted. `Ambiguous` when the disk
    /// didn't confirm the last step: the file is the old one or the new one, whole.
    pub fn replace(&self, mark: Mark, contents: &[u8]) -> Result<Checked> {
        self.guarded("replace", mark, || {
            disk::replace(&self.path, &self.beside(DATA), contents)
        })
    }

    /// Shuts older holders out without writing. A holder does this before it *reads* what it will write anew: until
    /// then an older one can still get a write in between.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn check(&self, mark: Mark) -> Result<Checked> {
        self.guarded("check", mark, || Ok(()))
    }

    /// The highest mark that the file has seen.
    ///
    /// # Errors
    /// As [`replace`](Self::replace), less what comes of writing.
    pub fn seen(&self) -> Result<Seen> {
        let seen = beside::read(&self.beside(MARK));
        seen.map_err(|error| self.told(error, "show"))
    }

    /// Begins an epoch: every write of an older one is stale from here on. Answers what has been seen afterwards,
    /// which is of a higher epoch where that has begun already; nothing is changed then, and nothing when it is this
    /// one.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn advance(&self, epoch: u32) -> Result<Seen> {
        let advance = || -> Result<Seen> {
            let mut beside = self.lock()?;
            if beside.seen().epoch() < epoch {
                beside.raise(Seen::new(epoch, None))?;
            }
            Ok(beside.seen())
        };
        advance().map_err(|error| self.told(error, "advance"))
    }

    /// Does the work if the mark is accepted, with all other writers shut out from the comparison to its end.
    fn guarded(
        &self,
        operation: &'static str,
        mark: Mark,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Checked> {
        let write = || -> Result<Checked> {
            let mut beside = self.lock()?;
            let checked = beside.seen().check(mark);
            if checked == Checked::Accepted {
                // Before the work: a write whose mark is lost could be overtaken by an older one.
                beside.raise(mark.into())?;
                work()?;
            }
            Ok(checked)
        };
        write().map_err(|error| self.told(error, operation))
    }

    fn lock(&self) -> Result<Beside> {
        Beside::lock(self.beside(MARK), self.beside(NEW_MARK))
    }

    fn folder(&self) -> &Path {
        disk::folder_of(&self.path)
    }

    /// The path with this behind it.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    fn told(&self, error: Error, operation: &'static str) -> Error {
        error.during(operation).named(&self.path.to_string_lossy())
    }
}

fn resolve(path: &Path) -> Result<PathBuf> {
    let invalid = |what: &str| {
        let what = format!("{} {what}", path.display());
        Err(Error::new(ErrorKind::Invalid, what))
    };
    let Some(name) = path
        .file_name()
        .filter(|_| !ends_in_slash(path.as_os_str()))
    else {
        return invalid("names no file");
    };
    match fs::canonicalize(path) {
        Ok(found) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Where there is something that leads nowhere, the write would replace the link.
            if fs::symlink_metadata(path).is_ok() {
                return invalid(
                    "is a symbolic link that leads nowhere; make the file, or remove the link",
                );
            }
            let folder = disk::folder_of(path);
            let found = fs::canonicalize(folder)
                .map_err(|error| disk::fault("can't reach the folder", folder, error))?;
            Ok(found.join(name))
        }
        Err(error) => Err(disk::fault("can't reach", path, error)),
    }
}

fn ends_in_slash(path: &OsStr) -> bool {
    path.as_encoded_bytes().ends_with(b"/")
}

fn ends_in(path: &Path, suffix: &str) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .ends_with(suffix.as_bytes())
}
