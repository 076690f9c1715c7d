//! etcd's part of a session: a lease, whether a beat of it counted (see [`crate::beat`]), and its canary: a key that
//! shows that the lease is there, and whose last write every try compares, so that writing it anew voids all tries
//! under way.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::session::{self, Pulse, SessionStore};
use leasehold_core::{Error, ErrorKind, Name, Result, clock};

use crate::beat::{Evidence, Verdict, Witness, verdict};
use crate::ending;
use crate::error::{Failure, unexpected};
use crate::keys;
use crate::link::Link;
use crate::wire::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseTimeToLiveRequest, Op,
    RangeRequest, TxnRequest,
};

/// How long a lease or its end may take to be answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a beat is repeated at once because its answers proved nothing: a leader was elected meanwhile.
const ROUNDS: u32 = 4;

pub(crate) type Session = session::Session<Link>;
pub(crate) type Seat = session::Seat<Link>;
pub(crate) type Pool = session::Pool<Link>;
pub(crate) type Place = session::Place<Made>;

/// A lease and its canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    pub(crate) canary: Vec<u8>,
    /// The revision the canary was last written at.
    pub(crate) written: i64,
}

impl Lease {
    /// The canary was last written at this revision.
    pub(crate) fn written_at(&mut self, revision: i64) {
        self.written = self.written.max(revision);
    }
}

/// A place's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// The revision it was made at.
    pub(crate) at: i64,
    /// Its name, where that is another than the lease would give it: a hold that came from another session.
    pub(crate) key: Option<Vec<u8>>,
}

impl From<i64> for Made {
    fn from(at: i64) -> Self {
        Self { at, key: None }
    }
}

#[async_trait]
impl SessionStore for Link {
    type Live = Lease;
    type Made = Made;

    /// Gets a lease and writes its canary.
    async fn begin(&self, session: &Arc<Session>) -> Result<(Lease, Pulse)> {
        let since = clock::now();
        let ttl = seconds(session.asked());
        let LeaseGrantResponse { id, ttl, .. } =
            self.ask(LeaseGrantRequest { ttl }, PATIENCE).await?;
        if id == 0 || ttl <= 0 {
            return Err(unexpected("the lease"));
        }
        let canary = keys::canary(id);
        let write = TxnRequest {
            success: vec![Op::put(&canary, Vec::new(), id), Op::get(&canary)],
            ..TxnRequest::default()
        };
        let answer = self.ask(write, PATIENCE).await?;
        let written = answer
            .range(1)
            .and_then(|range| range.kvs.first())
            .map(|kv| kv.mod_revision)
            .ok_or_else(|| unexpected("the canary"))?;
        let pulse = Pulse {
            since,
            ttl: Duration::from_secs(ttl.unsigned_abs()),
            keys: Arc::default(),
        };
        let lease = Lease {
            id,
            canary,
            written,
        };
        Ok((lease, pulse))
    }

    /// Keeps the lease alive and finds out whether that counted.
    async fn beat(&self, session: &Session, lease: &Lease) -> Result<Option<Pulse>> {
        // Several must fit into a lease.
        let patience = (session.asked() / 10).clamp(Duration::from_millis(200), PATIENCE);
        for _ in 0..ROUNDS {
            let before = self.witness();
            let since = clock::now();
            let renewed = self.keep_alive(lease.id, patience).await?;
            let request = LeaseTimeToLiveRequest {
                id: lease.id,
                keys: true,
            };
            let left = self.call(request, patience).await?;
            let read = self
                .call(RangeRequest::one(&lease.canary), patience)
                .await?;
            let evidence = Evidence {
                before,
                renewed: Witness::of(&renewed.header.unwrap_or_default()),
                alive: renewed.ttl > 0 && left.ttl > 0,
                read: Witness::of(&read.header.unwrap_or_default()),
                canary: !read.kvs.is_empty(),
            };
            match verdict(evidence) {
                Verdict::Renewed => {
                    return Ok(Some(Pulse {
                        since,
                        ttl: Duration::from_secs(renewed.ttl.unsigned_abs()),
                        keys: Arc::new(left.keys.into_iter().collect()),
                    }));
                }
                Verdict::Gone => return Ok(None),
                Verdict::Again => {}
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "the cluster's leader changes; no renewal counted",
        ))
    }

    async fn give_up(&self, session: &Session, name: &Name) -> Result<()> {
        ending::end(self, session, name, PATIENCE).await?;
        Ok(())
    }

    async fn end(&self, lease: Lease) {
        match self
            .call(LeaseRevokeRequest { id: lease.id }, PATIENCE)
            .await
        {
            Ok(_) | Err(Failure::LeaseGone) => {}
            Err(failure) => {
                tracing::debug!(
                    ?failure,
                    lease = lease.id,
                    "the lease is left to end by itself"
                );
            }
        }
    }
}

/// The TTL of the lease that a hold of `ttl` takes.
pub(crate) fn whole(ttl: Duration) -> Duration {
    Duration::from_secs(seconds(ttl).unsigned_abs())
}

/// Whole seconds, rounded up: what a lease can last.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    let up = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(up).unwrap_or(i64::MAX).max(1)
}
