//! The requests of Consul's that locks take.

use std::time::Duration;

use http::StatusCode;
use serde::de::DeserializeOwned;

use crate::error::{Failure, unauthorized, unexpected};
use crate::keys::encoded;
use crate::link::{Answer, Call, Link};
use crate::wire::{Entry, MadeSession, NewSession, Op, Service, SessionInfo, TxnAnswer};

/// How many steps a transaction may have.
pub(crate) const STEPS_MAX: usize = 64;
/// What a server may take longer than a blocking query asks for, and what its answer may take.
const LATE: Duration = Duration::from_secs(10);

fn read<T: DeserializeOwned>(answer: &Answer, what: &str) -> Result<T, Failure> {
    serde_json::from_slice(&answer.body).map_err(|_| Failure::Refused(unexpected(what)))
}

/// Whether what was asked for is there.
fn is_there(answer: &Answer) -> bool {
    answer.status != StatusCode::NOT_FOUND
}

impl Link {
    /// Does all steps or none.
    pub(crate) async fn txn(
        &self,
        ops: &[Op<'_>],
        patience: Duration,
    ) -> Result<TxnAnswer, Failure> {
        // A list of structs of texts and numbers always has a JSON form.
        let body = serde_json::to_vec(ops).unwrap_or_default();
        let call = Call::put("/v1/txn".into(), body);
        read(&self.call(&call, patience).await?, "what was done")
    }

    /// As [`txn`](Self::txn), for steps that change nothing; asks a leader that most of the servers follow.
    pub(crate) async fn look(
        &self,
        ops: &[Op<'_>],
        patience: Duration,
    ) -> Result<TxnAnswer, Failure> {
        let body = serde_json::to_vec(ops).unwrap_or_default();
        let call = Call::put("/v1/txn?consistent".into(), body);
        read(&self.ask(&call, patience).await?, "what was read")
    }

    /// Reads a key; asks a leader that most of the servers follow.
    pub(crate) async fn entry(
        &self,
        key: &str,
        patience: Duration,
    ) -> Result<Option<Entry>, Failure> {
        // Not by its path: servers refuse paths with characters that can't be printed.
        let answer = self.look(&[Op::get(key)], patience).await?;
        match answer.errors().first() {
            None => match answer.last() {
                Some(entry) => Ok(Some(entry.clone())),
                // One that isn't there is an error: this one is, and is kept from us.
                None => Err(Failure::Refused(unauthorized("the key may not be read"))),
            },
            Some(error) if error.what.ends_with("\" doesn't exist") => Ok(None),
            Some(error) => Err(Failure::Refused(unauthorized(&error.what))),
        }
    }

    /// Reads a key once it was changed after `index`, or this time is over; and the index to go on from.
    pub(crate) async fn changed_entry(
        &self,
        key: &str,
        index: u64,
        wait: Duration,
    ) -> Result<(Option<Entry>, u64), Failure> {
        let path = format!(
            "/v1/kv/{}?index={index}&wait={}ms",
            encoded(key),
            wait.as_millis()
        );
        let answer = self.wait(&Call::get(path), wait + wait / 16 + LATE).await?;
        Ok((first(&answer, "the key")?, answer.index))
    }

    /// Keys, all those among them that begin with `prefix`.
    pub(crate) async fn keys(
        &self,
        prefix: &str,
        patience: Duration,
    ) -> Result<Vec<String>, Failure> {
        // As far as it can surely stand in a path.
        let other = |c: char| !c.is_ascii_graphic();
        let prefix = &prefix[..prefix.find(other).unwrap_or(prefix.len())];
        let call = Call::get(format!("/v1/kv/{}?keys&consistent", encoded(prefix)));
        let answer = self.ask(&call, patience).await?;
        if !is_there(&answer) {
            // Those that the token may not read are left out. Reading one says so, also where there is none.
            let probe = Call::get(format!("/v1/kv/{}.lock", encoded(prefix)));
            self.ask(&probe, patience).await?;
            return Ok(Vec::new());
        }
        read(&answer, "the keys")
    }

    /// Makes a session; its id.
    pub(crate) async fn create_session(
        &self,
        mut session: NewSession,
        patience: Duration,
    ) -> Result<String, Failure> {
        if self.datacenter.is_some() {
            // The agent's own node is none of that datacenter's; a server stays longest.
            let call = Call::get("/v1/catalog/service/consul".into());
            let server: Option<Service> = first(&self.ask(&call, patience).await?, "the servers")?;
            session.node = server.map(|server| server.node);
        }
        let body = serde_json::to_vec(&session).unwrap_or_default();
        let call = Call::put("/v1/session/create".into(), body);
        let made: MadeSession = read(&self.ask(&call, patience).await?, "the session")?;
        Ok(made.id)
    }

    /// Has a session last its TTL from now. False where some server said that there is none.
    pub(crate) async fn renew_session(
        &self,
        id: &str,
        patience: Duration,
    ) -> Result<bool, Failure> {
        let call = Call::put(format!("/v1/session/renew/{id}"), Vec::new());
        Ok(is_there(&self.call(&call, patience).await?))
    }

    /// A session; none where it has ended. Asks a leader that most of the servers follow.
    pub(crate) async fn session(
        &self,
        id: &str,
        patience: Duration,
    ) -> Result<Option<SessionInfo>, Failure> {
        let call = Call::get(format!("/v1/session/info/{id}?consistent"));
        first(&self.ask(&call, patience).await?, "the session")
    }

    /// Whether a session is there, once that changed after `index` or this time is over; and the index to go on from.
    pub(crate) async fn changed_session(
        &self,
        id: &str,
        index: u64,
        wait: Duration,
    ) -> Result<(bool, u64), Failure> {
        let path = format!(
            "/v1/session/info/{id}?index={index}&wait={}ms",
            wait.as_millis()
        );
        let answer = self.wait(&Call::get(path), wait + wait / 16 + LATE).await?;
        let session: Option<SessionInfo> = first(&answer, "the session")?;
        Ok((session.is_some(), answer.index))
    }

    /// Ends a session. What it has locked is kept from everybody for its lock-delay.
    pub(crate) async fn destroy_session(
        &self,
        id: &str,
        patience: Duration,
    ) -> Result<(), Failure> {
        let call = Call::put(format!("/v1/session/destroy/{id}"), Vec::new());
        self.ask(&call, patience).await.map(drop)
    }
}

/// The first of a list that may be empty, or not be there at all.
fn first<T: DeserializeOwned>(answer: &Answer, what: &str) -> Result<Option<T>, Failure> {
    if !is_there(answer) {
        return Ok(None);
    }
    let all: Option<Vec<T>> = read(answer, what)?;
    Ok(all.into_iter().flatten().next())
}
