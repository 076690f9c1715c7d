//! Files made durable: written beside, waited for, renamed.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use leasehold_core::{Error, ErrorKind, Result};

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The error of an operation on a file, nothing of which has taken effect.
pub(super) fn fault(what: &str, path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::Unauthorized
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            ErrorKind::Invalid
        }
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{what} {}", path.display())).because(error)
}

/// What is known of the file, if it is there; an error where it is no file that can be replaced.
pub(super) fn existing(path: &Path) -> Result<Option<Metadata>> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault("can't look at", path, error)),
    };
    let invalid = |what: String| {
        let what = format!("{} {what}", path.display());
        Err(Error::new(ErrorKind::Invalid, what))
    };
    if !found.is_file() {
        return invalid("is not a file".into());
    }
    if found.nlink() > 1 {
        let links = found.nlink();
        return invalid(format!(
            "has {links} hard links, and a replacement would reach one of them; leave one"
        ));
    }
    Ok(Some(found))
}

/// Puts the contents in the place of the file, by way of one beside it.
pub(super) fn replace(path: &Path, beside: &Path, contents: &[u8]) -> Result<()> {
    let replaced = existing(path)?;
    // Closed until it has the mode of the file that it replaces: who opens it before could read what comes.
    let file = create(beside, if replaced.is_some() { 0o600 } else { 0o666 })?;
    let written = || -> Result<()> {
        if let Some(replaced) = &replaced {
            keep_attributes(&file, path, replaced)?;
        }
        (&file)
            .write_all(contents)
            .and_then(|()| file.sync_all())
            .map_err(|error| fault("can't write", beside, error))?;
        fs::rename(beside, path).map_err(|error| fault("can't replace", path, error))
    };
    if let Err(error) = written() {
        let _ = fs::remove_file(beside);
        return Err(error);
    }
    confirm(path)
}

/// A new file of this name, which nobody has open but us. What a writer that was killed has left there is removed.
pub(super) fn create(path: &Path, mode: u32) -> Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(fault("can't remove", path, error));
        }
        _ => {}
    }
    // `create_new` follows no link that somebody puts there in between.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(|error| fault("can't make", path, error))
}

/// Gives a new file the owner and group of another, as far as this process may.
pub(super) fn share(file: &File, like: &Metadata) {
    if fchown(file, Some(like.uid()), Some(like.gid())).is_err() {
        let _ = fchown(file, None, Some(like.gid()));
    }
}

fn keep_attributes(file: &File, path: &Path, replaced: &Metadata) -> Result<()> {
    let ours = file
        .metadata()
        .map_err(|error| fault("can't look at the file beside", path, error))?;
    let owners = |of: &Metadata| (of.uid(), of.gid());
    if owners(&ours) != owners(replaced) {
        let (user, group) = owners(replaced);
        fchown(file, Some(user), Some(group)).map_err(|error| {
            let what = format!(
                "{} belongs to user {user} and group {group}, which this process can't give to the file that takes \
                 its place; run as that user",
                path.display()
            );
            Error::new(ErrorKind::Unauthorized, what).because(error)
        })?;
    }
    // After the owner, whose change takes bits away.
    let mode = fs::Permissions::from_mode(replaced.permissions().mode() & 0o7777);
    file.set_permissions(mode)
        .map_err(|error| fault("can't set the mode of the file beside", path, error))
}

/// Waits until the disk has what was last renamed to this path.
pub(super) fn confirm(path: &Path) -> Result<()> {
    let folder = folder_of(path);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| {
        let what = format!(
            "{} was written, and the disk didn't confirm its name; it is the old file or the new one",
            path.display()
        );
        Error::new(ErrorKind::Ambiguous, what).because(error)
    })
}
