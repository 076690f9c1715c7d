//! Charges a customer, and never twice for the same request.
//!
//! A request that got no answer is sent again, and nobody can tell whether the first one was lost on its way or on the way
//! back. So the key is of the request: customer, amount, and the time at which the customer asked. It is recorded with the
//! charge, in one transaction, and a repeat gets the receipt of the first.

#![allow(clippy::print_stdout, reason = "a program says what it did")]

use std::error::Error;

use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once};
use tokio_postgres::NoTls;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CHARGE: &str = "INSERT INTO charges (customer, cents) VALUES ($1, $2)";

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, url, customer, cents, time] = &args[..] else {
        return Err("usage: charge URL CUSTOMER CENTS TIME".into());
    };
    // Else another customer's request could come to the same key.
    if customer.contains('/') || time.contains('/') {
        return Err("a customer and a time have no / in them".into());
    }
    let cents: i64 = cents.parse()?;
    let once = Once::new(format!("charge/{customer}/{cents}/{time}").parse()?);
    // All is in one transaction, which keeps requests apart by itself: no lock is needed, so there is one name and one
    // token for all.
    let pass: Pass = "charges:1".parse()?;
    let receipt = match url.strip_prefix("sqlite://") {
        Some(path) => on_sqlite(path, &once, &pass, customer, cents)?,
        None => on_postgres(url, &once, &pass, customer, cents).await?,
    };
    println!("{receipt}");
    Ok(())
}

fn on_sqlite(path: &str, once: &Once, pass: &Pass, customer: &str, cents: i64) -> Result<String> {
    use leasehold_once::sqlite;

    let mut database = rusqlite::Connection::open(path)?;
    sqlite::prepare(&database)?;
    let transaction = database.transaction()?;
    let begun = sqlite::begin(&transaction, once, pass)?;
    if begun != Begun::First {
        return earlier(begun);
    }
    transaction.execute(CHARGE, (customer, cents))?;
    let receipt = receipt(once);
    let finished = sqlite::finish(&transaction, once, pass, receipt.as_bytes())?;
    recorded(finished)?;
    transaction.commit()?;
    Ok(receipt)
}

async fn on_postgres(
    url: &str,
    once: &Once,
    pass: &Pass,
    customer: &str,
    cents: i64,
) -> Result<String> {
    use leasehold_once::postgres;

    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    postgres::prepare(&client).await?;
    let transaction = client.transaction().await?;
    let begun = postgres::begin(&transaction, once, pass).await?;
    if begun != Begun::First {
        return earlier(begun);
    }
    transaction.execute(CHARGE, &[&customer, &cents]).await?;
    let receipt = receipt(once);
    let finished = postgres::finish(&transaction, once, pass, receipt.as_bytes()).await?;
    recorded(finished)?;
    transaction.commit().await?;
    Ok(receipt)
}

/// What a repeat gets.
fn earlier(begun: Begun) -> Result<String> {
    match begun {
        Begun::Done(success) => Ok(String::from_utf8(success.result)?),
        other => Err(format!("{other:?}").into()),
    }
}

fn recorded(finished: Finished) -> Result<()> {
    match finished {
        Finished::Recorded => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Another one for each call, so that it shows which call a receipt is from.
fn receipt(once: &Once) -> String {
    format!("receipt {}-{}", once.key(), std::process::id())
}
