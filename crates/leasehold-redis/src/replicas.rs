//! Grants that count only once replicas have them.
//!
//! `WAIT` speaks of what was last written on its own connection. So a grant, whoever's connection wrote it, is
//! renewed and waited for in one go, on a connection that carries nothing else: what waits holds up all behind it.
//! The renewal asks for a millisecond more than the grant can have left, so that it always writes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::backend::{Grant, Renewal};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Name, Owner, Result, clock};
use redis::{Value, cmd};

use crate::dial::invalid;
use crate::keys::Keys;
use crate::link::Failure;
use crate::renewer::{millis, renewal};
use crate::script::RENEW;
use crate::servers::Servers;

/// The URL parameter with the number of replicas.
pub(crate) const COUNT: &str = "min-replicas";
/// The one with how long they may take.
pub(crate) const TIMEOUT: &str = "replica-timeout";

/// How long they may take where the URL doesn't say.
const TIMEOUT_DEFAULT: Duration = Duration::from_millis(500);
/// The longest: what waits must end before its connection is given up.
const TIMEOUT_MAX: Duration = Duration::from_secs(3);
/// How many grants can be waited for at once without one waiting for another.
const LANES: usize = 4;

/// What a URL asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

/// Takes the parameters out of the URL.
pub(crate) fn wanted(url: &mut StoreUrl) -> Result<Option<Wanted>> {
    let count = url.take(COUNT);
    let timeout = url.take(TIMEOUT);
    let Some(count) = count else {
        return match timeout {
            Some(_) => Err(invalid(&format!("{TIMEOUT} goes with {COUNT}"))),
            None => Ok(None),
        };
    };
    let count = count.parse().ok().filter(|count| (1..=100).contains(count));
    let count = count.ok_or_else(|| invalid(&format!("{COUNT} is a number from 1 to 100")))?;
    let timeout = match timeout.as_deref() {
        None => TIMEOUT_DEFAULT,
        Some(text) => duration(text)
            .filter(|timeout| !timeout.is_zero() && *timeout <= TIMEOUT_MAX)
            .ok_or_else(|| {
                invalid(&format!(
                    "{TIMEOUT} is a duration from 1ms to {TIMEOUT_MAX:?}, as in 500ms"
                ))
            })?,
    };
    Ok(Some(Wanted { count, timeout }))
}

/// Whole milliseconds or seconds, with their unit.
fn duration(text: &str) -> Option<Duration> {
    if let Some(number) = text.strip_suffix("ms") {
        return number.parse().ok().map(Duration::from_millis);
    }
    let number = text.strip_suffix('s')?;
    number.parse().ok().map(Duration::from_secs)
}

/// Waits for replicas.
#[derive(Debug)]
pub(crate) struct Replicas {
    wanted: Wanted,
    lanes: Vec<Servers>,
    next: AtomicUsize,
}

impl Replicas {
    pub(crate) fn new(wanted: Wanted, lane: impl Fn() -> Servers) -> Self {
        Self {
            wanted,
            lanes: (0..LANES).map(|_| lane()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// How many must have a grant.
    pub(crate) fn count(&self) -> u32 {
        self.wanted.count
    }

    /// The grant, once enough replicas have it.
    ///
    /// # Errors
    /// When they don't in time, or the hold is gone: then it is to be released.
    pub(crate) async fn confirm(
        &self,
        name: &Name,
        owner: Owner,
        ttl: Duration,
        grant: Grant,
    ) -> Result<Grant> {
        let keys = Keys::of(name);
        let owner = owner.to_hex();
        let longer = (millis(ttl) + 1).to_string();
        let mut wait = cmd("WAIT");
        wait.arg(self.wanted.count).arg(millis(self.wanted.timeout));
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let lane = &self.lanes[turn % self.lanes.len()];
        let since = clock::now();
        let keys = [keys.lock.as_str(), &keys.counter];
        let args = [owner.as_str(), &longer];
        let answer = match lane.call_and_then(&RENEW, &keys, &args, &wait).await {
            // It renews the same hold, however often it runs.
            Err(Failure::Stale(_) | Failure::Elsewhere(..)) => {
                lane.call_and_then(&RENEW, &keys, &args, &wait).await?
            }
            answer => answer?,
        };
        let (Value::Array(renewed), Value::Int(acknowledged)) = answer else {
            return Err(Error::new(
                ErrorKind::Bug,
                format!("a renewal and WAIT were answered {answer:?}"),
            ));
        };
        let renewed = renewed.first().unwrap_or(&Value::Nil);
        let Renewal::Renewed { since, ttl } = renewal(renewed, since, ttl) else {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the lock was lost again while replicas were waited for",
            ));
        };
        if acknowledged >= i64::from(self.wanted.count) {
            return Ok(Grant {
                since,
                ttl,
                ..grant
            });
        }
        Err(Error::new(
            ErrorKind::Unreplicated,
            format!(
                "{acknowledged} of the {} replicas that {COUNT} asks for had the lock within {:?}; it was released; \
                 look at the replicas, or ask for fewer",
                self.wanted.count, self.wanted.timeout
            ),
        ))
    }

    pub(crate) fn close(&self) {
        for lane in &self.lanes {
            lane.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_strictly() {
        let read =
            |query: &str| wanted(&mut StoreUrl::parse(&format!("redis://h?{query}")).unwrap());
        assert_eq!(read("").unwrap(), None);
        for (query, count, timeout) in [
            ("min-replicas=1", 1, 500),
            ("min-replicas=2&replica-timeout=50ms", 2, 50),
            ("min-replicas=2&replica-timeout=2s", 2, 2000),
        ] {
            let timeout = Duration::from_millis(timeout);
            assert_eq!(
                read(query).unwrap(),
                Some(Wanted { count, timeout }),
                "{query}"
            );
        }
        for query in [
            "min-replicas=0",
            "min-replicas=x",
            "replica-timeout=1s",
            "min-replicas=1&replica-timeout=500",
            "min-replicas=1&replica-timeout=0ms",
            "min-replicas=1&replica-timeout=5s",
        ] {
            assert_eq!(
                read(query).unwrap_err().kind(),
                ErrorKind::Invalid,
                "{query}"
            );
        }
    }
}
