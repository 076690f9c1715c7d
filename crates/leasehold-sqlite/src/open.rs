//! Opens the file: checks what it is, makes it where there is none, and sets what the promises hang on.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::{ErrorKind, clock, disk};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, AtFlags, Mode};

use crate::error::Failure;
use crate::liveness::Folder;

/// Marks the file as leasehold's ("lshd").
const APPLICATION: i32 = 0x6c73_6864;
/// The version of the schema.
const VERSION: i32 = 1;
const SCHEMA: &str = include_str!("schema.sql");

/// The longest pause between two tries of a locked file: first and last.
const PAUSE_MIN: Duration = Duration::from_micros(250);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// How long it is tried.
const PATIENCE: Duration = Duration::from_secs(3);

/// Statements kept prepared: more than there are.
const STATEMENTS: usize = 64;

pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// Without symbolic links.
    pub(crate) path: PathBuf,
    pub(crate) files: Files,
    pub(crate) folder: Folder,
}

pub(crate) fn open(path: &Path) -> Result<Opened, Failure> {
    let path = resolve(path)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    disk::check_local(parent)?;
    share(&path);
    check_rights(&path, parent)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags(&path, flags).map_err(|error| {
        let failure = Failure::from(error);
        Failure {
            message: format!("{}: {}", path.display(), failure.message),
            ..failure
        }
    })?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // The log stays when the last process ends: emptying it then and making it anew costs a job that runs under one
    // lock four of its six waits for the disk. It is emptied when it is long.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_handler(Some(wait_for_lock))?;
    let begun = clock::now();
    // Making a file and changing its journal mode don't ask the busy handler everywhere.
    while let Err(unprepared) = prepare(&connection, &path) {
        match unprepared {
            Unprepared::Busy(_) if clock::now().since(begun).steady < PATIENCE => {
                std::thread::sleep(PAUSE_MAX);
            }
            Unprepared::Busy(failure) | Unprepared::For(failure) => return Err(failure),
        }
    }
    let files = Files::of(&path)?;
    let folder = Folder::beside(&path)?;
    Ok(Opened {
        connection,
        path,
        files,
        folder,
    })
}

/// The path without symbolic links, so that all who use the file agree on the folder beside it.
fn resolve(path: &Path) -> Result<PathBuf, Failure> {
    let invalid = |message: String| Failure::new(ErrorKind::Invalid, message);
    match fs::canonicalize(path) {
        Ok(found) => {
            let metadata = fs::metadata(&found).map_err(|error| {
                invalid(format!("{} can't be looked at: {error}", found.display()))
            })?;
            if !metadata.is_file() {
                return Err(invalid(format!(
                    "{} is not a file; name one, for example {}/locks.db",
                    found.display(),
                    found.display()
                )));
            }
            if metadata.nlink() > 1 {
                return Err(invalid(format!(
                    "{} has {} hard links, and processes that open it by different ones don't exclude each \
                     other; leave one",
                    found.display(),
                    metadata.nlink()
                )));
            }
            Ok(found)
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(Failure::new(
            ErrorKind::Unauthorized,
            format!("{} can't be reached: {error}", path.display()),
        )),
        Err(_) => {
            let parent = path.parent().unwrap_or(Path::new("/"));
            let found = fs::canonicalize(parent).map_err(|error| {
                invalid(format!(
                    "{} can't be made: its folder can't be reached ({error}); make the folder or name another",
                    path.display()
                ))
            })?;
            Ok(found.join(path.file_name().unwrap_or_default()))
        }
    }
}

/// SQLite opens a file that can't be written for reading, and fails later with less to say.
fn check_rights(path: &Path, parent: &Path) -> Result<(), Failure> {
    let may = |path: &Path, access| {
        rustix::fs::accessat(rustix::fs::CWD, path, access, AtFlags::EACCESS).is_ok()
    };
    let both = Access::READ_OK | Access::WRITE_OK;
    let lacking = std::iter::once(path.to_owned())
        .chain(companions(path))
        .find(|path| path.exists() && !may(path, both))
        .or_else(|| (!may(parent, Access::WRITE_OK | Access::EXEC_OK)).then(|| parent.to_owned()));
    let Some(lacking) = lacking else {
        return Ok(());
    };
    let why = format!(
        "{} can't be written by this process; {}",
        lacking.display(),
        rights_of(&lacking)
    );
    Err(if path.exists() {
        Failure::new(ErrorKind::Unauthorized, why)
    } else {
        // Nobody has been refused a store: there is none.
        Failure::new(
            ErrorKind::Invalid,
            format!("{} can't be made: {why}", path.display()),
        )
    })
}

/// SQLite's own files beside the database: log and shared memory.
fn companions(path: &Path) -> impl Iterator<Item = PathBuf> {
    ["-wal", "-shm"].into_iter().map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    })
}

/// Gives SQLite's own files the mode and group of the database, where they are ours: a killed process leaves
/// them behind, and the database may have been opened to others since.
fn share(path: &Path) {
    let Ok(database) = fs::metadata(path) else {
        return;
    };
    for companion in companions(path) {
        // By their names: opening and closing them here would end SQLite's locks on them.
        if let Ok(found) = fs::metadata(&companion)
            && found.uid() == rustix::process::geteuid().as_raw()
            && (found.mode(), found.gid()) != (database.mode(), database.gid())
        {
            let group = rustix::fs::Gid::from_raw(database.gid());
            let _ = rustix::fs::chown(&companion, None, Some(group));
            let _ = rustix::fs::chmod(&companion, Mode::from_raw_mode(database.mode() & 0o777));
        }
    }
}

/// Whose a file or folder is, and what to do to share it.
pub(crate) fn rights_of(path: &Path) -> String {
    let Ok(found) = fs::metadata(path) else {
        return "its owner and mode can't be read".into();
    };
    format!(
        "it belongs to user {} and group {} with mode {:04o}, and this process is user {}. To share a store, put \
         its users into one group and give that group the right to write the folder, the file and what is beside \
         it; or use a store of your own",
        found.uid(),
        found.gid(),
        found.mode() & 0o7777,
        rustix::process::geteuid().as_raw(),
    )
}

thread_local! {
    /// When this thread began to wait for another process, on the boot clock.
    static WAITING_SINCE: Cell<u64> = const { Cell::new(0) };
}

/// Asked by SQLite while another process has the file locked; whether to try again.
fn wait_for_lock(tries: i32) -> bool {
    let now = clock::now().boot;
    if tries == 0 {
        WAITING_SINCE.set(now);
    }
    // A commit on a quick disk takes less than a millisecond, one on a slow disk twenty.
    let most = PAUSE_MAX.min(PAUSE_MIN * (1 << tries.clamp(0, 8)));
    // What the clock shows below a microsecond is jitter enough to keep processes out of step.
    let jitter = u32::try_from(now % 1000).unwrap_or(0);
    std::thread::sleep(most / 5 + most * 4 / 5 / 1000 * jitter);
    Duration::from_nanos(now - WAITING_SINCE.get()) < PATIENCE
}

enum Unprepared {
    Busy(Failure),
    For(Failure),
}

impl From<rusqlite::Error> for Unprepared {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(error.into()),
            _ => Self::For(error.into()),
        }
    }
}

impl From<Failure> for Unprepared {
    fn from(failure: Failure) -> Self {
        Self::For(failure)
    }
}

/// Makes or checks the tables and sets what is set per connection. Writes nothing to a file that is not ours.
fn prepare(connection: &Connection, path: &Path) -> Result<(), Unprepared> {
    let is_new = check_contents(connection, path)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Failure::new(
            ErrorKind::Unsupported,
            format!(
                "{} can't have a write-ahead log (its journal mode is {mode})",
                path.display()
            ),
        )
        .into());
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF;")?;
    let synchronous: i32 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if synchronous != 2 {
        return Err(Failure::new(
            ErrorKind::Unsupported,
            "SQLite doesn't wait for the disk (synchronous is not FULL), so tokens could go back after a power cut",
        )
        .into());
    }
    if is_new {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let made = make(connection, path);
        let end = if made.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = connection.execute_batch(end);
        made?;
        ended?;
        // Into the file, so that it has its pages should the disk be full one day.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    }
    Ok(())
}

/// Whether the file is empty; an error when it is something else than ours.
fn check_contents(connection: &Connection, path: &Path) -> Result<bool, Unprepared> {
    // In one statement, so that a file that another process makes meanwhile is seen before or after that.
    let (application, version, tables): (i32, i32, i64) = connection.query_row(
        "SELECT (SELECT application_id FROM pragma_application_id),
                (SELECT user_version FROM pragma_user_version),
                (SELECT count(*) FROM sqlite_schema)",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    if application == APPLICATION {
        if version == VERSION {
            return Ok(false);
        }
        return Err(Failure::new(
            ErrorKind::Unsupported,
            format!(
                "{} was written by another version of leasehold (its schema is {version}, this one's is \
                 {VERSION}); use the same version for all users of a file",
                path.display()
            ),
        )
        .into());
    }
    if application == 0 && version == 0 && tables == 0 {
        return Ok(true);
    }
    Err(Failure::new(
        ErrorKind::Invalid,
        format!(
            "{} is another program's SQLite database and was left as it is; name another file",
            path.display()
        ),
    )
    .into())
}

/// Makes the tables, unless another process has done so since we looked.
fn make(connection: &Connection, path: &Path) -> Result<(), Unprepared> {
    if !check_contents(connection, path)? {
        return Ok(());
    }
    connection.execute_batch(SCHEMA)?;
    connection.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    ))?;
    Ok(())
}

/// An error once the path, or that of the log or its index, names another file than the one that is open: another
/// process would not see our rows, nor we its.
pub(crate) fn check_same_files(path: &Path, files: &Files) -> Result<(), Failure> {
    if Files::of(path).is_ok_and(|found| found == *files) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorKind::Unavailable,
        format!(
            "{} was removed or replaced while it was in use; stop all its users, then start them again",
            path.display()
        ),
    ))
}

/// Device and inode of the file, of its log and of the log's index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Files(Vec<(u64, u64)>);

impl Files {
    fn of(path: &Path) -> Result<Self, Failure> {
        let files = std::iter::once(path.to_owned()).chain(companions(path));
        files
            .map(|file| identity(&file))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn identity(path: &Path) -> Result<(u64, u64), Failure> {
    let found =
        rustix::fs::stat(path).map_err(|error| Failure::of_file("can't look at", path, error))?;
    Ok((found.st_dev, found.st_ino))
}
