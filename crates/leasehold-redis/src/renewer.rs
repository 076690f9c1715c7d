//! Renewals of many holds in few requests.
//!
//! The keeper renews what is due together; what arrives here together goes out as one script call, up to 200
//! holds each. It runs on the keeper's thread with a connection of its own, so that no grant waits behind it
//! and a caller that blocks its runtime keeps its locks.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{LossReason, Renewal};
use leasehold_core::clock::{self, Moment};
use leasehold_core::{Error, ErrorKind, Name, Owner, Result, background};
use redis::Value;
use tokio::sync::{mpsc, oneshot};

use crate::keys::{Family, Keys};
use crate::link::{Failure, Way};
use crate::script::RENEW;
use crate::servers::Servers;

/// The most holds in one request: the server does nothing else meanwhile.
const BATCH: usize = 200;

#[derive(Debug)]
struct Renew {
    name: Name,
    owner: Owner,
    ttl: Duration,
    since: Moment,
    answer: oneshot::Sender<Result<Renewal>>,
}

/// Where holds send their renewals.
#[derive(Clone, Debug)]
pub(crate) struct Renewer {
    queue: mpsc::UnboundedSender<Renew>,
    servers: Arc<Servers>,
}

impl Renewer {
    /// Starts on the keeper's thread; ends with the last of its clones.
    pub(crate) fn start(servers: Arc<Servers>, family: Family) -> Result<Self> {
        let (queue, arrivals) = mpsc::unbounded_channel();
        background::spawn(run(servers.clone(), family, arrivals))?;
        Ok(Self { queue, servers })
    }

    /// The servers over connections on the keeper's thread.
    pub(crate) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Whether it was an operator who took this hold away, as far as the store can say.
    pub(crate) async fn was_broken(&self, name: &Name, owner: Owner) -> bool {
        let answer = self.servers.get(&Keys::broken(name)).await;
        matches!(answer, Ok(Value::BulkString(broken)) if broken == owner.to_hex().as_bytes())
    }

    pub(crate) async fn renew(&self, name: &Name, owner: Owner, ttl: Duration) -> Result<Renewal> {
        let (answer, answered) = oneshot::channel();
        let renew = Renew {
            name: name.clone(),
            owner,
            ttl,
            since: clock::now(),
            answer,
        };
        let gone = || Error::new(ErrorKind::Unavailable, "the connection has been closed");
        self.queue.send(renew).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

async fn run(servers: Arc<Servers>, family: Family, mut arrivals: mpsc::UnboundedReceiver<Renew>) {
    let mut batch = Vec::new();
    while arrivals.recv_many(&mut batch, BATCH).await > 0 {
        // The keeper starts the renewals that are due in one go: let it finish, and take them all.
        tokio::task::yield_now().await;
        while batch.len() < BATCH {
            match arrivals.try_recv() {
                Ok(renew) => batch.push(renew),
                Err(_) => break,
            }
        }
        // A batch that hangs must not hold the next one up.
        for part in servers.apart(std::mem::take(&mut batch), |renew| renew.name.as_str()) {
            tokio::spawn(send(servers.clone(), family, part));
        }
    }
}

async fn send(servers: Arc<Servers>, family: Family, batch: Vec<Renew>) {
    let answers = ask(&servers, family, &batch).await;
    if !matches!(answers, Err(Failure::Elsewhere(Way::Again, _))) || batch.len() == 1 {
        return settle(batch, answers);
    }
    // They were renewed together and are at two nodes now: each is asked for alone.
    for renew in batch {
        let servers = servers.clone();
        tokio::spawn(async move {
            let alone = vec![renew];
            let answers = ask(&servers, family, &alone).await;
            settle(alone, answers);
        });
    }
}

async fn ask(servers: &Servers, family: Family, batch: &[Renew]) -> Result<Vec<Value>, Failure> {
    let counters: Vec<String> = batch
        .iter()
        .map(|renew| Keys::counter(family, &renew.name))
        .collect();
    let args: Vec<[String; 2]> = batch
        .iter()
        .map(|renew| [renew.owner.to_hex(), millis(renew.ttl).to_string()])
        .collect();
    let locks = batch.iter().map(|renew| renew.name.as_str());
    let keys: Vec<&str> = locks
        .zip(&counters)
        .flat_map(|(lock, counter)| [lock, counter])
        .collect();
    let args: Vec<&str> = args.iter().flatten().map(String::as_str).collect();
    match servers.ask_together(&RENEW, &keys, &args).await? {
        Value::Array(answers) if answers.len() == batch.len() => Ok(answers),
        other => Err(Failure::Sent(Error::new(
            ErrorKind::Bug,
            format!("the renewal script answered {other:?}"),
        ))),
    }
}

fn settle(batch: Vec<Renew>, answers: Result<Vec<Value>, Failure>) {
    match answers {
        Ok(answers) => {
            for (renew, answer) in batch.into_iter().zip(answers) {
                // Who gave up waiting needs no answer.
                let renewal = renewal(&answer, renew.since, renew.ttl);
                let _ = renew.answer.send(Ok(renewal));
            }
        }
        Err(failure) => {
            let error = Error::from(failure);
            for renew in batch {
                let _ = renew
                    .answer
                    .send(Err(Error::new(error.kind(), error.to_string())));
            }
        }
    }
}

/// What the script's answer for one hold means, of a renewal to `ttl` that was sent at `since`.
pub(crate) fn renewal(answer: &Value, since: Moment, ttl: Duration) -> Renewal {
    match answer {
        Value::Int(1) => Renewal::Renewed { since, ttl },
        Value::Int(2) => Renewal::Lost(LossReason::Stolen),
        _ => Renewal::Lost(LossReason::Expired),
    }
}

/// Whole milliseconds, rounded up: half of one must not become none.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_millisecond_counts_as_a_whole_one() {
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_millis(500)), 500);
        assert_eq!(millis(Duration::from_micros(500_001)), 501);
    }
}
