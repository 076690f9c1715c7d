//! A store's database, opened for what isn't locking: marks of resources, records of what happened once.

use std::path::PathBuf;

use leasehold::StoreUrl;
use leasehold_core::disk::check_local;
use rusqlite::{Connection, OpenFlags};

use super::Context;
use crate::exit::Failure;

/// Opens the file, which may be a program's own database. Where there is none it becomes a store of locks. `bare` is the
/// URL without what is the client's.
pub(super) async fn sqlite(
    context: &Context,
    url: StoreUrl,
    bare: &StoreUrl,
) -> Result<Connection, Failure> {
    let path: PathBuf =
        leasehold_sqlite::file(bare).map_err(|error| Failure::connecting(&error))?;
    if !path.exists() {
        let made = leasehold::connect_to(url)
            .await
            .map_err(|error| Failure::connecting(&error))?;
        made.close().await;
    }
    if let Some(folder) = path.parent() {
        check_local(folder)?;
    }
    let opened = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(&path, flags)?;
        database.busy_timeout(context.settings.connect_timeout.value)?;
        // As FULL with a write-ahead log; without one, also the journal's removal waits for the disk.
        database.execute_batch("PRAGMA synchronous = EXTRA")?;
        Ok(database)
    };
    opened().map_err(|error| {
        Failure::unavailable(format!("{} can't be opened: {error}", path.display()))
    })
}
