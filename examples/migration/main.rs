//! Changes a database once, though every instance of a program does so when it starts.
//!
//! The change and the record that it was made are one transaction: whoever is killed in it has done nothing, and those who
//! come meanwhile wait for its end.

#![allow(clippy::print_stdout, reason = "a program says what it did")]

use std::error::Error;

use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once};
use tokio_postgres::NoTls;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// From euros to cents: made twice, it would make prices a hundred times what they are.
const MIGRATION: &str = "UPDATE prices SET price = price * 100";

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, url] = &args[..] else {
        return Err("usage: migration URL".into());
    };
    let once = Once::new("schema/42".parse()?);
    // No lock is needed: the transaction keeps the instances apart.
    let pass: Pass = "schema:1".parse()?;
    let begun = match url.strip_prefix("sqlite://") {
        Some(path) => on_sqlite(path, &once, &pass)?,
        None => on_postgres(url, &once, &pass).await?,
    };
    match begun {
        Begun::First => println!("migrated"),
        Begun::Done(_) => println!("nothing to do"),
        other => return Err(format!("{other:?}").into()),
    }
    Ok(())
}

fn on_sqlite(path: &str, once: &Once, pass: &Pass) -> Result<Begun> {
    use leasehold_once::sqlite;

    let mut database = rusqlite::Connection::open(path)?;
    database.busy_timeout(std::time::Duration::from_secs(60))?;
    sqlite::prepare(&database)?;
    let transaction = database.transaction()?;
    let begun = sqlite::begin(&transaction, once, pass)?;
    if begun == Begun::First {
        transaction.execute_batch(MIGRATION)?;
        if sqlite::finish(&transaction, once, pass, b"")? != Finished::Recorded {
            return Err("the record was taken away".into());
        }
        transaction.commit()?;
    }
    Ok(begun)
}

async fn on_postgres(url: &str, once: &Once, pass: &Pass) -> Result<Begun> {
    use leasehold_once::postgres;

    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    postgres::prepare(&client).await?;
    let transaction = client.transaction().await?;
    let begun = postgres::begin(&transaction, once, pass).await?;
    if begun == Begun::First {
        transaction.batch_execute(MIGRATION).await?;
        if postgres::finish(&transaction, once, pass, b"").await? != Finished::Recorded {
            return Err("the record was taken away".into());
        }
        transaction.commit().await?;
    }
    Ok(begun)
}
