//! What operators see and do.

use std::time::Duration;

use leasehold_core::advisory::{AdvisoryStore, Failure, Standing};
use leasehold_core::backend::{Broken, Inspection};
use leasehold_core::{Error, ErrorKind, Holder, Name, Result, Token, clock};
use tokio_postgres::types::Type;

use crate::backend::Store;
use crate::error::unexpected;
use crate::keys::Key;
use crate::link::{get, token};
use crate::note;
use crate::sql;

/// How long is waited for a holder to give back what an operator took away.
const BREAK: Duration = Duration::from_secs(4);
/// How often is looked whether he has.
const AGAIN: Duration = Duration::from_millis(50);

/// How a lock stands now, and how many wait for it.
pub(crate) async fn stand(store: &Store, name: &Name, lock: &Name) -> Result<(Standing, usize)> {
    let key = Key::of_lock(lock).ok_or_else(|| unexpected("a key"))?;
    let (class, object, kind) = key.parts();
    let up = store.desk().await?.up;
    let params = [
        (&up as _, Type::INT8),
        (&name.as_str() as _, Type::TEXT),
        (&class as _, Type::INT8),
        (&object as _, Type::INT8),
        (&kind as _, Type::INT2),
    ];
    let (rows, has_row) = match store.ask(&sql::inspect(), &params).await {
        // Nobody of ours was ever granted one.
        Err(Failure::NoTable) => (store.ask(&sql::inspect_bare(), &params[2..]).await?, false),
        rows => (rows?, true),
    };
    let row = rows.first().ok_or_else(|| unexpected("a row"))?;
    let pid: Option<i32> = get(row, 0)?;
    let waiters: i64 = get(row, 1)?;
    let mut standing = Standing {
        session: pid.and_then(|pid| u64::try_from(pid).ok()),
        last: None,
        is_lasts: false,
        broken: None,
    };
    if has_row && get::<Option<i64>>(row, 4)?.is_some() {
        standing.last = Some(note::holder(row, 4)?);
        standing.is_lasts = get(row, 3)?;
        standing.broken = token(get(row, 2)?);
    }
    Ok((standing, usize::try_from(waiters).unwrap_or(0)))
}

/// The token of the hold of this name that an operator took away.
pub(crate) async fn broken(store: &Store, name: &Name) -> Result<Option<Token>> {
    let text = "SELECT broken FROM leasehold.locks WHERE name = $1";
    let rows = match store.ask(text, &[(&name.as_str(), Type::TEXT)]).await {
        Err(Failure::NoTable) => return Ok(None),
        rows => rows?,
    };
    match rows.first() {
        Some(row) => Ok(token(get(row, 0)?)),
        None => Ok(None),
    }
}

/// Who holds a lock and who waits for it.
pub(crate) async fn inspect(store: &Store, name: &Name) -> Result<Inspection> {
    let lock = store.lock(name).await?;
    let (standing, waiters) = stand(store, name, &lock).await?;
    Ok(standing.inspection(name, waiters))
}

/// All locks held now whose name begins with `prefix`.
pub(crate) async fn list(store: &Store, prefix: &str) -> Result<Vec<Inspection>> {
    let up = store.desk().await?.up;
    let params = [(&up as _, Type::INT8), (&prefix as _, Type::TEXT)];
    let rows = match store.ask(&sql::list(), &params).await {
        Err(Failure::NoTable) => return Ok(Vec::new()),
        rows => rows?,
    };
    let mut held = Vec::new();
    for row in &rows {
        let Ok(name) = Name::new(get(row, 0)?) else {
            continue;
        };
        let holder = note::holder(row, 1)?;
        let mut inspection = Inspection::free(name);
        inspection.last_token = holder.token;
        inspection.holder = Some(holder);
        held.push(inspection);
    }
    Ok(held)
}

/// Takes a lock away. A session that has no other lock is ended; else its holder is told and gives this one back.
pub(crate) async fn break_hold(store: &Store, name: &Name, token: Option<Token>) -> Result<Broken> {
    let lock = store.lock(name).await?;
    let before = store.standing(name, &lock).await?;
    let (Some(session), Some(holder)) = (before.session, before.holder()) else {
        return Ok(Broken::Free);
    };
    if token.is_some() && token != holder.token {
        return Ok(Broken::OtherToken(holder));
    }
    if let Some(token) = holder.token {
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let params = [(&name.as_str() as _, Type::TEXT), (&token as _, Type::INT8)];
        store.ask(sql::BREAK, &params).await?;
    }
    let pid = i32::try_from(session).unwrap_or(0);
    // A role that may not end it leaves it to the holder.
    let ended = store.ask(sql::END, &[(&pid, Type::INT4)]).await;
    let begun = clock::now();
    loop {
        let now = store.standing(name, &lock).await?;
        if now.session != before.session || now.holds() != holder.token {
            return Ok(Broken::Ended(holder));
        }
        if clock::now().since(begun).steady > BREAK {
            ended?;
            return Err(refused(store, pid, &holder).await);
        }
        clock::sleep(AGAIN).await;
    }
}

/// The error of a holder who doesn't give back, or can't be told.
async fn refused(store: &Store, pid: i32, holder: &Holder) -> Error {
    let rows = store.ask(sql::HOLDS, &[(&pid, Type::INT4)]).await;
    let others: Vec<String> = rows
        .iter()
        .flatten()
        .filter_map(|row| get(row, 0).ok())
        .collect();
    let told = match holder.token {
        Some(_) => {
            "its holder is told and gives it back at its session's next beat, within a quarter of its TTL"
        }
        None => "a client of another make has it, and can't be told",
    };
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{told}; SELECT pg_terminate_backend({pid}) ends its session, and with it: {}",
            others.join(", ")
        ),
    )
}
