//! A store's database, opened for what isn't locking: marks of resources, records of what happened once.

use std::path::PathBuf;

use leasehold::StoreUrl;
use leasehold_core::disk::check_local;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Context;
use crate::exit::Failure;

/// Opens the file, which may be a program's own database. Where there is none it becomes a store of locks, and where there
/// is nothing in it: it is being made, or who made it got no further, and with a table of ours alone it could not become
/// one any more. `bare` is the URL without what is the client's.
pub(super) async fn sqlite(
    context: &Context,
    url: StoreUrl,
    bare: &StoreUrl,
) -> Result<Connection, Failure> {
    let path: PathBuf =
        leasehold_sqlite::file(bare).map_err(|error| Failure::connecting(&error))?;
    // Before it is touched; a folder that isn't there is made, and looked at, by the store.
    if let Some(folder) = path.parent().filter(|folder| folder.exists()) {
        check_local(folder)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Connection> {
        let database = Connection::open_with_flags(&path, flags)?;
        database.busy_timeout(context.settings.connect_timeout.value)?;
        Ok(database)
    };
    let tables = |database: Connection| {
        let count = "SELECT count(*) FROM sqlite_schema";
        database.query_row(count, [], |row| row.get::<_, i64>(0))
    };
    let is_empty = match open().and_then(tables) {
        Ok(tables) => tables == 0,
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            let what = format!("{} is no SQLite database, or damaged", path.display());
            return Err(Failure::config(what));
        }
        // What is wrong shows below.
        Err(_) => !path.exists(),
    };
    if is_empty {
        let made = leasehold::connect_to(url)
            .await
            .map_err(|error| Failure::connecting(&error))?;
        made.close().await;
    }
    let opened = || -> rusqlite::Result<Connection> {
        let database = open()?;
        // As FULL with a write-ahead log; without one, also the journal's removal waits for the disk.
        database.execute_batch("PRAGMA synchronous = EXTRA")?;
        Ok(database)
    };
    opened().map_err(|error| {
        Failure::unavailable(format!("{} can't be opened: {error}", path.display()))
    })
}
