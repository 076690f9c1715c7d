//! By what others see that a process lives: a file of its own that it keeps locked.
//!
//! The kernel drops the lock (`flock`) when the last descriptor of the file is closed: at the end of the process
//! and of every child that inherited it, however they end. No process ids, which are reused and differ from
//! one container to the next. A file that is missing or can't be opened says nothing.
//!
//! Whoever probes takes a shared lock, which two probers can have at once and which keeps the maker of a file
//! that is not locked yet from using it. Only who has the lock unlinks the file.

use std::fs::{self, DirBuilder};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use leasehold_core::ErrorKind;
use rustix::fs::{FlockOperation, Gid, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::Failure;

/// The folder of the liveness files of one database.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Mode and group of the database: who can write that can also probe and ring.
    mode: Mode,
    group: Gid,
}

/// What a probe says of a process.
#[derive(Debug)]
pub(crate) enum Pulse {
    Alive,
    Dead(Corpse),
    Unknown,
}

/// The file of a dead process. While this lives, nobody can begin to use the file.
#[derive(Debug)]
pub(crate) struct Corpse {
    pub(crate) id: String,
    path: PathBuf,
    _locked: OwnedFd,
}

/// The file of this backend.
#[derive(Debug)]
pub(crate) struct Liveness {
    pub(crate) id: String,
    pub(crate) folder: Folder,
    file: OwnedFd,
}

impl Folder {
    /// The folder beside `database`, made if it is not there.
    pub(crate) fn beside(database: &Path) -> Result<Self, Failure> {
        let mut name = database.as_os_str().to_owned();
        name.push(".live");
        let found = fs::metadata(database).map_err(|error| {
            Failure::new(
                ErrorKind::Unavailable,
                format!("{} can't be looked at: {error}", database.display()),
            )
        })?;
        let folder = Self {
            path: PathBuf::from(name),
            mode: Mode::from_raw_mode(found.mode() & 0o666),
            group: Gid::from_raw(found.gid()),
        };
        match fs::metadata(&folder.path) {
            Ok(found) if found.uid() == rustix::process::geteuid().as_raw() => {
                // The database may have been opened to others since the folder was made.
                if found.mode() & 0o777 != folder.own_mode().as_raw_mode() {
                    folder.share(&folder.path)?;
                }
            }
            Ok(_) => {}
            Err(_) => folder.make()?,
        }
        Ok(folder)
    }

    /// Makes the folder under another name first, so that nobody sees it before its mode is right.
    fn make(&self) -> Result<(), Failure> {
        let fail = |error| Failure::of_file("can't make the folder", &self.path, error);
        let mut draft = self.path.clone().into_os_string();
        draft.push(format!(".{}", random_id()?));
        let draft = PathBuf::from(draft);
        DirBuilder::new()
            .mode(0o700)
            .create(&draft)
            .map_err(|error| fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        self.share(&draft)?;
        let renamed = rustix::fs::renameat_with(
            rustix::fs::CWD,
            &draft,
            rustix::fs::CWD,
            &self.path,
            RenameFlags::NOREPLACE,
        );
        match renamed {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = fs::remove_dir(&draft);
                // Another process was faster.
                if error == Errno::EXIST {
                    Ok(())
                } else {
                    Err(fail(error))
                }
            }
        }
    }

    /// The folder's mode: who may write the database must be able to make and remove files here.
    fn own_mode(&self) -> Mode {
        let mut mode = Mode::RWXU;
        for (written, all) in [(Mode::WGRP, Mode::RWXG), (Mode::WOTH, Mode::RWXO)] {
            if self.mode.contains(written) {
                mode |= all;
            }
        }
        mode
    }

    /// Gives the folder its group and mode; another group than the database's gets no rights.
    fn share(&self, path: &Path) -> Result<(), Failure> {
        let mut mode = self.own_mode();
        if rustix::fs::chown(path, None, Some(self.group)).is_err() {
            mode -= Mode::RWXG;
        }
        rustix::fs::chmod(path, mode)
            .map_err(|error| Failure::of_file("can't set the mode of", path, error))
    }

    /// Whether the process with this file lives.
    pub(crate) fn probe(&self, id: &str) -> Pulse {
        let Some(path) = self.file(id) else {
            return Pulse::Unknown;
        };
        // Opened for reading: closing a file opened for writing rings its owner's bell.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Ok(file) = rustix::fs::open(&path, flags, Mode::empty()) else {
            return Pulse::Unknown;
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) if is_linked(&file, &path) => Pulse::Dead(Corpse {
                id: id.to_owned(),
                path,
                _locked: file,
            }),
            Err(Errno::WOULDBLOCK) => Pulse::Alive,
            // Buried by another prober meanwhile, or a file system without locks.
            Ok(()) | Err(_) => Pulse::Unknown,
        }
    }

    /// Has the process with this file look at the database.
    pub(crate) fn ring(&self, id: &str) {
        let Some(path) = self.file(id) else { return };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if let Err(error) = rustix::fs::open(&path, flags, Mode::empty()) {
            // It looks by itself within a second.
            tracing::debug!(path = %path.display(), %error, "a waiter can't be woken");
        }
    }

    /// The ids of all files there are.
    pub(crate) fn ids(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| is_id(name))
            .collect()
    }

    /// The path of a file, unless the id, which comes from a row, is none.
    pub(crate) fn file(&self, id: &str) -> Option<PathBuf> {
        is_id(id).then(|| self.path.join(id))
    }
}

impl Corpse {
    /// Removes the file: to be called once no row speaks of it any more.
    pub(crate) fn bury(self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Liveness {
    /// Makes a file and locks it.
    pub(crate) fn begin(folder: Folder) -> Result<Self, Failure> {
        // A prober can win the race for a file that was made and not yet locked; ten times in a row it doesn't.
        for _ in 0..10 {
            let id = random_id()?;
            let path = folder.path.join(&id);
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|error| refusal(&folder.path, error))?;
            let grouped = rustix::fs::fchown(&file, None, Some(folder.group)).is_ok();
            let mut mode = folder.mode | Mode::RUSR | Mode::WUSR;
            if !grouped {
                mode -= Mode::RWXG;
            }
            rustix::fs::fchmod(&file, mode)
                .map_err(|error| Failure::of_file("can't set the mode of", &path, error))?;
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            if locked.is_ok() && is_linked(&file, &path) {
                return Ok(Self { id, folder, file });
            }
            // Where the lock failed for another reason than a prober, nobody else will remove it.
            let _ = fs::remove_file(&path);
            if let Err(error) = locked
                && error != Errno::WOULDBLOCK
            {
                return Err(Failure::of_file("can't lock", &path, error));
            }
        }
        Err(Failure::new(
            ErrorKind::Unavailable,
            format!(
                "no file in {} could be locked before another process had it",
                folder.path.display()
            ),
        ))
    }

    /// Another descriptor of the same open file: the lock lasts as long as either.
    pub(crate) fn duplicate(&self) -> Option<OwnedFd> {
        self.file.try_clone().ok()
    }

    /// Ends in good order. Holds that are still there end by time alone: a missing file says nothing.
    pub(crate) fn end(&self) {
        if let Some(path) = self.folder.file(&self.id) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether `file` still is what `path` names.
fn is_linked(file: &OwnedFd, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (rustix::fs::fstat(file), rustix::fs::lstat(path)) else {
        return false;
    };
    open.st_nlink == 1 && open.st_ino == named.st_ino && open.st_dev == named.st_dev
}

fn is_id(text: &str) -> bool {
    text.len() == 32
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn random_id() -> Result<String, Failure> {
    // An owner is 128 random bits in the very form that is needed here.
    Ok(leasehold_core::Owner::random()?.to_hex())
}

/// Why no file can be made in the folder, and what to do.
fn refusal(folder: &Path, error: Errno) -> Failure {
    let mut failure = Failure::of_file("can't make a file in", folder, error);
    if failure.kind == ErrorKind::Unauthorized {
        failure.message = format!("{}; {}", failure.message, crate::open::rights_of(folder));
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        let database = place.path().join("locks.db");
        fs::write(&database, "").unwrap();
        let folder = Folder::beside(&database).unwrap();
        (place, folder)
    }

    #[test]
    fn who_has_the_file_lives_and_who_let_go_of_it_is_dead() {
        let (_place, folder) = folder();
        let own = Liveness::begin(folder.clone()).unwrap();
        assert!(matches!(folder.probe(&own.id), Pulse::Alive));
        let child = own.duplicate().unwrap();
        let id = own.id.clone();
        drop(own);
        assert!(matches!(folder.probe(&id), Pulse::Alive));
        drop(child);
        // As many probers as there are see it, and the first to bury it is not the last.
        let (Pulse::Dead(first), Pulse::Dead(second)) = (folder.probe(&id), folder.probe(&id))
        else {
            panic!("not seen dead");
        };
        first.bury();
        assert!(matches!(folder.probe(&id), Pulse::Unknown));
        second.bury();
    }

    #[test]
    fn what_is_missing_or_no_id_says_nothing() {
        let (place, folder) = folder();
        let none = "0123456789abcdef0123456789abcdef";
        assert!(matches!(folder.probe(none), Pulse::Unknown));
        let outside = "../locks.db";
        assert!(place.path().join("locks.db.live").join(outside).exists());
        assert!(matches!(folder.probe(outside), Pulse::Unknown));
        std::os::unix::fs::symlink("../locks.db", folder.file(none).unwrap()).unwrap();
        assert!(matches!(folder.probe(none), Pulse::Unknown));
    }

    #[test]
    fn a_buried_file_is_not_used_by_its_maker() {
        let (_place, folder) = folder();
        // Probers that take every file they see, as fast as they can, while files are made.
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        for id in folder.ids() {
                            if let Pulse::Dead(corpse) = folder.probe(&id) {
                                corpse.bury();
                            }
                        }
                    }
                });
            }
            let mut made: Vec<Liveness> = Vec::new();
            for _ in 0..500 {
                // Where probers win ten times in a row there is no file, and an error that says so.
                made.extend(Liveness::begin(folder.clone()));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(made.len() > 250, "{}", made.len());
            for own in &made {
                assert!(matches!(folder.probe(&own.id), Pulse::Alive), "{}", own.id);
            }
        });
    }
}
