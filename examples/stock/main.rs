//! Reserves pieces of an item, and never more than there are.
//!
//! The lock lets one process at a time decide, so that nobody works for nothing. What keeps the count right is the fence:
//! a process that was frozen past its time, and goes on after another one has been there, is refused in the transaction
//! that writes.

#![allow(clippy::print_stdout, reason = "a program says what it did")]

use std::error::Error;
use std::time::Duration;

use leasehold::Name;
use leasehold_fence::{Checked, Mark};
use tokio_postgres::NoTls;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const COUNT: &str = "SELECT count FROM stock WHERE item = $1";
const RESERVE: &str = "UPDATE stock SET count = $1 WHERE item = $2";

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, database, locks, item, pieces] = &args[..] else {
        return Err("usage: stock DATABASE LOCKS ITEM PIECES".into());
    };
    let pieces: i64 = pieces.parse()?;
    let client = leasehold::connect(locks).await?;
    let lock = client.lock(&format!("stock/{item}"))?;
    let guard = lock.acquire_within(Duration::from_secs(60)).await?;
    let guard = guard.ok_or("others have been at it for a minute")?;

    // The work is dropped the moment the lock is lost.
    let mark = Mark::from(guard.token());
    let left = guard.run(reserve(database, item, pieces, mark)).await??;
    println!("{left} left");

    guard.release().await?;
    client.close().await;
    Ok(())
}

async fn reserve(url: &str, item: &str, pieces: i64, mark: Mark) -> Result<i64> {
    let resource: Name = format!("stock/{item}").parse()?;
    if let Some(path) = url.strip_prefix("sqlite://") {
        return on_sqlite(path, &resource, item, pieces, mark);
    }
    on_postgres(url, &resource, item, pieces, mark).await
}

fn on_sqlite(path: &str, resource: &Name, item: &str, pieces: i64, mark: Mark) -> Result<i64> {
    use leasehold_fence::sqlite;

    let mut database = rusqlite::Connection::open(path)?;
    sqlite::prepare(&database)?;
    let transaction = database.transaction()?;
    // First: what is read below can't change any more before the commit.
    if let Checked::Stale(stale) = sqlite::check(&transaction, resource, mark)? {
        return Err(stale.to_string().into());
    }
    let count = transaction.query_row(COUNT, [item], |row| row.get(0))?;
    let left = take(count, pieces)?;
    transaction.execute(RESERVE, (left, item))?;
    transaction.commit()?;
    Ok(left)
}

async fn on_postgres(
    url: &str,
    resource: &Name,
    item: &str,
    pieces: i64,
    mark: Mark,
) -> Result<i64> {
    use leasehold_fence::postgres;

    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    postgres::prepare(&client).await?;
    let transaction = client.transaction().await?;
    // First: what is read below can't change any more before the commit.
    if let Checked::Stale(stale) = postgres::check(&transaction, resource, mark).await? {
        return Err(stale.to_string().into());
    }
    let count = transaction.query_one(COUNT, &[&item]).await?.get(0);
    let left = take(count, pieces)?;
    transaction.execute(RESERVE, &[&left, &item]).await?;
    transaction.commit().await?;
    Ok(left)
}

fn take(count: i64, pieces: i64) -> Result<i64> {
    match count - pieces {
        left if left >= 0 => Ok(left),
        _ => Err(format!("only {count} left").into()),
    }
}
