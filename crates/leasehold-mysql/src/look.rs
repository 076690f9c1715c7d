//! What operators see and do.

use std::time::Duration;

use leasehold_core::advisory::{AdvisoryStore, Failure, Standing};
use leasehold_core::backend::{Broken, Inspection};
use leasehold_core::{Error, ErrorKind, Name, Result, Token, clock};
use mysql_async::Params;

use crate::backend::Store;
use crate::error::unexpected;
use crate::keys::lock_name;
use crate::link::{first, get, named};
use crate::note;
use crate::sql;

/// How long is waited for a holder to give back what an operator took away.
const BREAK: Duration = Duration::from_secs(4);
/// How often is looked whether he has.
const AGAIN: Duration = Duration::from_millis(50);

/// How a lock stands now.
pub(crate) async fn standing(store: &Store, name: &Name) -> Result<Standing> {
    let lock = lock_name(name);
    let params = |start: i64| {
        named([
            ("name", name.as_str().into()),
            ("lock", lock.as_str().into()),
            ("start", start.into()),
        ])
    };
    let (answer, has_row) = match store.ask(&sql::inspect(), params).await {
        // Nobody of ours was ever granted one.
        Err(Failure::NoTable) => (store.ask(sql::INSPECT_BARE, params).await?, false),
        answer => (answer?, true),
    };
    let row = answer.rows.first().ok_or_else(|| unexpected("a row"))?;
    let mut standing = Standing {
        session: get(row, 0)?,
        last: None,
        is_lasts: false,
        broken: None,
    };
    if has_row && get::<Option<u64>>(row, 3)?.is_some() {
        standing.last = Some(note::holder(row, 3)?);
        standing.is_lasts = get::<Option<u64>>(row, 2)? == Some(1);
        standing.broken = get::<Option<u64>>(row, 1)?.and_then(Token::new);
    }
    Ok(standing)
}

/// The token of the hold of this name that an operator took away.
pub(crate) async fn broken(store: &Store, name: &Name) -> Result<Option<Token>> {
    let params = |_| named([("name", name.as_str().into())]);
    let answer = match store.ask(sql::IS_BROKEN, params).await {
        Err(Failure::NoTable) => return Ok(None),
        answer => answer?,
    };
    let token: Option<u64> = match answer.rows.first() {
        Some(row) => get(row, 0)?,
        None => None,
    };
    Ok(token.and_then(Token::new))
}

/// Who holds a lock and who waits for it.
pub(crate) async fn inspect(store: &Store, name: &Name) -> Result<Inspection> {
    let standing = standing(store, name).await?;
    Ok(standing.inspection(name, waiters(store, name).await?))
}

/// How many wait for a lock; none where the server keeps that to itself.
async fn waiters(store: &Store, name: &Name) -> Result<usize> {
    let text = sql::waiters(store.desk().await?.edition.sessions());
    let wait = sql::waiting(&lock_name(name));
    match store
        .ask(&text, |_| named([("wait", wait.as_str().into())]))
        .await
    {
        Ok(answer) => first(&answer),
        Err(Failure::NoTable | Failure::Refused(_)) => Ok(0),
        Err(failure) => Err(failure.into()),
    }
}

/// All locks held now whose name begins with `prefix`.
pub(crate) async fn list(store: &Store, prefix: &str) -> Result<Vec<Inspection>> {
    let params = |start: i64| named([("start", start.into()), ("prefix", prefix.into())]);
    let answer = match store.ask(&sql::list(), params).await {
        Err(Failure::NoTable) => return Ok(Vec::new()),
        answer => answer?,
    };
    let mut held = Vec::new();
    for row in &answer.rows {
        let Ok(name) = Name::new(&get::<String>(row, 0)?) else {
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

/// Takes a lock away: its holder is told and gives it back. The session of one that stays silent is ended where it has no
/// other lock of ours, and so is that of a client of another make, who can't be told.
pub(crate) async fn break_hold(store: &Store, name: &Name, token: Option<Token>) -> Result<Broken> {
    let before = standing(store, name).await?;
    let (Some(session), Some(holder)) = (before.session, before.holder()) else {
        return Ok(Broken::Free);
    };
    if token.is_some() && token != holder.token {
        return Ok(Broken::OtherToken(holder));
    }
    if let Some(token) = holder.token {
        let mark = |_| {
            named([
                ("name", name.as_str().into()),
                ("token", token.get().into()),
            ])
        };
        store.ask(sql::BREAK, mark).await?;
        if ends(store, name, &before).await? {
            return Ok(Broken::Ended(holder));
        }
    }
    let others = holds(store, session).await?;
    if others.iter().all(|other| other == name.as_str()) {
        let killed = store
            .ask(&format!("KILL {session}"), |_| Params::Empty)
            .await;
        // One that ended meanwhile is no error.
        if ends(store, name, &before).await? {
            return Ok(Broken::Ended(holder));
        }
        killed?;
    }
    let told = match holder.token {
        Some(_) => "its holder was told and gives no answer",
        None => "a client of another make has it, and can't be told",
    };
    Err(Error::new(
        ErrorKind::Unavailable,
        format!(
            "{told}; KILL {session} ends its session, and with it: {}",
            others.join(", ")
        ),
    ))
}

/// Whether a lock stands otherwise within a while.
async fn ends(store: &Store, name: &Name, before: &Standing) -> Result<bool> {
    let begun = clock::now();
    loop {
        let now = standing(store, name).await?;
        if now.session != before.session || now.holds() != before.holds() {
            return Ok(true);
        }
        if clock::now().since(begun).steady > BREAK {
            return Ok(false);
        }
        clock::sleep(AGAIN).await;
    }
}

/// The names that a session of ours holds.
async fn holds(store: &Store, session: u64) -> Result<Vec<String>> {
    let params =
        |start: i64| -> Params { named([("session", session.into()), ("start", start.into())]) };
    let answer = match store.ask(sql::HOLDS, params).await {
        Err(Failure::NoTable) => return Ok(Vec::new()),
        answer => answer?,
    };
    answer.rows.iter().map(|row| get(row, 0)).collect()
}
