//! What operators see and do.

use std::time::Duration;

use leasehold_core::backend::{Broken, Inspection};
use leasehold_core::{Error, ErrorKind, Holder, Name, Result, Token, clock};
use tokio_postgres::types::Type;

use crate::backend::Shared;
use crate::error::Failure;
use crate::keys::Key;
use crate::link::get;
use crate::note;
use crate::sql;

/// How long is waited for a holder to give back what an operator took away.
const BREAK: Duration = Duration::from_secs(4);
/// How often is looked whether he has.
const AGAIN: Duration = Duration::from_millis(50);

/// How a lock stands.
#[derive(Debug)]
pub(crate) struct Standing {
    /// The server's process whose session has the lock.
    pid: Option<i32>,
    waiters: i64,
    /// The newest hold of the name.
    last: Option<Holder>,
    /// Whether that is the one that has the lock.
    is_lasts: bool,
    /// The token of the hold that an operator took away.
    pub(crate) broken: Option<Token>,
}

impl Standing {
    pub(crate) fn is_held(&self) -> bool {
        self.pid.is_some()
    }

    /// The token that it is held with; none where it is free or a client of another make has it.
    pub(crate) fn holds(&self) -> Option<Token> {
        self.last.as_ref().filter(|_| self.is_lasts)?.token
    }

    /// Who has it.
    fn holder(&self) -> Option<Holder> {
        self.pid?;
        let last = self.last.clone().filter(|_| self.is_lasts);
        Some(last.unwrap_or_else(|| Holder::new(None, None)))
    }
}

/// How a lock stands now.
pub(crate) async fn standing(shared: &Shared, name: &Name, key: Key) -> Result<Standing> {
    let (class, object, kind) = key.parts();
    let up = shared.desk().await?.up;
    let text = sql::inspect();
    let params = [
        (&up as _, Type::INT8),
        (&name.as_str() as _, Type::TEXT),
        (&class as _, Type::INT8),
        (&object as _, Type::INT8),
        (&kind as _, Type::INT2),
    ];
    let rows = match shared.ask(&text, &params).await {
        Err(Failure::NoTable) => return bare(shared, &params[2..]).await,
        rows => rows?,
    };
    let row = rows
        .first()
        .ok_or_else(|| crate::error::unexpected("a row"))?;
    let token: Option<i64> = get(row, 4)?;
    let broken: Option<i64> = get(row, 2)?;
    Ok(Standing {
        pid: get(row, 0)?,
        waiters: get(row, 1)?,
        last: token.map(|_| note::holder(row, 4)).transpose()?,
        is_lasts: get(row, 3)?,
        broken: broken.and_then(|token| Token::new(u64::try_from(token).ok()?)),
    })
}

/// How a lock stands where nobody of ours was ever granted one.
async fn bare(
    shared: &Shared,
    params: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
) -> Result<Standing> {
    let rows = shared.ask(&sql::inspect_bare(), params).await?;
    let row = rows
        .first()
        .ok_or_else(|| crate::error::unexpected("a row"))?;
    Ok(Standing {
        pid: get(row, 0)?,
        waiters: get(row, 1)?,
        last: None,
        is_lasts: false,
        broken: None,
    })
}

/// The token of the hold of this name that an operator took away.
pub(crate) async fn broken(shared: &Shared, name: &Name) -> Result<Option<Token>> {
    let text = "SELECT broken FROM leasehold.locks WHERE name = $1";
    let rows = match shared.ask(text, &[(&name.as_str(), Type::TEXT)]).await {
        Err(Failure::NoTable) => return Ok(None),
        rows => rows?,
    };
    let token: Option<i64> = match rows.first() {
        Some(row) => get(row, 0)?,
        None => None,
    };
    Ok(token.and_then(|token| Token::new(u64::try_from(token).ok()?)))
}

/// Who holds a lock and who waits for it.
pub(crate) async fn inspect(shared: &Shared, name: &Name) -> Result<Inspection> {
    let key = shared.key(name).await?;
    let standing = standing(shared, name, key).await?;
    let mut inspection = Inspection::free(name.clone());
    inspection.holder = standing.holder();
    // The server doesn't say who they are.
    let waiters = usize::try_from(standing.waiters).unwrap_or(0);
    inspection.waiters = std::iter::repeat_n(None, waiters).collect();
    inspection.last_token = standing.last.and_then(|last| last.token);
    Ok(inspection)
}

/// All locks held now whose name begins with `prefix`.
pub(crate) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<Inspection>> {
    let up = shared.desk().await?.up;
    let params = [(&up as _, Type::INT8), (&prefix as _, Type::TEXT)];
    let rows = match shared.ask(&sql::list(), &params).await {
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
pub(crate) async fn break_hold(
    shared: &Shared,
    name: &Name,
    token: Option<Token>,
) -> Result<Broken> {
    let key = shared.key(name).await?;
    let before = standing(shared, name, key).await?;
    let (Some(pid), Some(holder)) = (before.pid, before.holder()) else {
        return Ok(Broken::Free);
    };
    if token.is_some() && token != holder.token {
        return Ok(Broken::OtherToken(holder));
    }
    if let Some(token) = holder.token {
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let params = [(&name.as_str() as _, Type::TEXT), (&token as _, Type::INT8)];
        shared.ask(sql::BREAK, &params).await?;
    }
    // A role that may not end it leaves it to the holder.
    let ended = shared.ask(sql::END, &[(&pid, Type::INT4)]).await;
    let begun = clock::now();
    loop {
        let now = standing(shared, name, key).await?;
        if now.pid != Some(pid) || now.holds() != holder.token {
            return Ok(Broken::Ended(holder));
        }
        if clock::now().since(begun).steady > BREAK {
            ended?;
            return Err(refused(shared, pid, &holder).await);
        }
        clock::sleep(AGAIN).await;
    }
}

/// The error of a holder who doesn't give back, or can't be told.
async fn refused(shared: &Shared, pid: i32, holder: &Holder) -> Error {
    let rows = shared.ask(sql::HOLDS, &[(&pid, Type::INT4)]).await;
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
