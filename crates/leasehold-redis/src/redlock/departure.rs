//! A release on every node: in one go while all answer, and in the background where some don't.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use leasehold_core::backend::Release;
use leasehold_core::{Error, Name, Owner, Result, background, clock};
use tokio::sync::{oneshot, watch};

use super::hold::{Leaving, Left, Step};
use super::nodes::{Node, Nodes};
use super::panel::Panel;
use super::script;
use crate::link::Failure;
use crate::renewer::millis;

/// What is to be ended.
pub(super) struct Terms {
    pub(super) name: Name,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
    /// Nodes on which a request of it may still land.
    pub(super) loose: Nodes,
    /// It stays this much longer, by time alone.
    pub(super) keep: Duration,
    /// Nobody wants to hear what it found, nor begins it again.
    pub(super) unheard: bool,
}

struct Departure {
    panel: Arc<Panel>,
    terms: Arc<Terms>,
    leaving: Leaving,
    /// Who is to be told what it found, until they are.
    asker: Option<oneshot::Sender<Result<Option<Release>>>>,
    /// What a node said that refuses it, which asking again doesn't change.
    refusal: Option<Error>,
    /// What it found can't be said: whoever asked begins again.
    unclear: bool,
    /// Nodes that nothing waits for which can do without.
    away: Nodes,
    /// What is to be done after a pause, in the background.
    later: Vec<Step>,
}

/// What came of one step.
type Done = Option<(Node, Result<Left, Failure>)>;

/// Begins it. What is answered is what it found, once that can be said, or `None` when it can't; then it is to be
/// begun again. Where nobody wants to hear it, there may be no answer; but every node that isn't away has been asked once
/// by then.
///
/// # Errors
/// In the answer, where nodes refuse it so that nothing can be said.
pub(super) fn begin(
    panel: &Arc<Panel>,
    terms: Terms,
) -> oneshot::Receiver<Result<Option<Release>>> {
    let (decided, decision) = oneshot::channel();
    let mut steps = Vec::new();
    let now = clock::now();
    let ttl = terms.ttl.max(terms.keep);
    let mut leaving = Leaving::begin(panel.quorum(), terms.loose, ttl, now, &mut steps);
    let away = panel.members.away();
    steps.retain(|step| !matches!(step, Step::Leave { node, .. } if away.contains(*node)));
    for node in away.iter() {
        // Nothing was sent: what was found out before stands for its first answer.
        leaving.failed(node, false, now, &mut steps);
    }
    let departure = Departure {
        panel: panel.clone(),
        terms: Arc::new(terms),
        leaving,
        asker: Some(decided),
        refusal: None,
        unclear: false,
        away,
        later: Vec::new(),
    };
    let ticket = Ticket::of(&panel.leaving);
    tokio::spawn(departure.go(steps, ticket));
    decision
}

impl Departure {
    /// Asks every node once, and again until it can be said what was found; the rest is left to the background, and
    /// with it those that are away unless it takes their answer.
    async fn go(mut self, steps: Vec<Step>, ticket: Ticket) {
        let mut flight = FuturesUnordered::new();
        self.take_in(steps, &mut flight);
        loop {
            while let Some(done) = flight.next().await {
                let steps = self.done(done);
                self.take_in(steps, &mut flight);
                if self.unclear {
                    return;
                }
            }
            if !self.is_awaited() || self.away.is_empty() {
                break;
            }
            self.away = Nodes::NONE;
            let steps = std::mem::take(&mut self.later);
            self.take_in(steps, &mut flight);
        }
        drop(ticket);
        self.asker = None;
        if self.leaving.is_over() {
            return;
        }
        if let Err(error) = background::spawn(self.rest()) {
            tracing::debug!(%error, "a release is left to its TTL on some nodes");
        }
    }

    /// The nodes that gave no answer, until they do or nothing can be left on them.
    async fn rest(mut self) {
        let mut flight = FuturesUnordered::new();
        loop {
            for step in std::mem::take(&mut self.later) {
                flight.push(self.step(step));
            }
            let Some(done) = flight.next().await else {
                return;
            };
            let steps = self.done(done);
            self.take_in(steps, &mut flight);
        }
    }

    fn take_in(
        &mut self,
        steps: Vec<Step>,
        flight: &mut FuturesUnordered<BoxFuture<'static, Done>>,
    ) {
        let decision = steps.iter().find_map(|step| match step {
            Step::Decide(found) => Some(*found),
            Step::Leave { .. } | Step::Call { .. } => None,
        });
        if let Some(found) = decision {
            self.unclear = found.is_none() && !self.terms.unheard;
            if let Some(asker) = self.asker.take() {
                // Who gave up waiting needs no answer.
                let _ = asker.send(match (found, self.refusal.take()) {
                    (None, Some(refusal)) => Err(refusal),
                    (found, _) => Ok(found),
                });
            }
        }
        let awaited = self.is_awaited();
        for step in steps {
            match step {
                Step::Decide(_) => {}
                Step::Leave { node, after, .. }
                    if !after.is_zero() && (!awaited || self.away.contains(node)) =>
                {
                    self.later.push(step);
                }
                step => flight.push(self.step(step)),
            }
        }
    }

    /// Somebody waits to hear what it found.
    fn is_awaited(&self) -> bool {
        self.asker.is_some() && !self.terms.unheard
    }

    fn done(&mut self, done: Done) -> Vec<Step> {
        let mut steps = Vec::new();
        match done {
            None => {}
            Some((node, Ok(left))) => self.leaving.answered(node, left, &mut steps),
            Some((node, Err(failure))) => {
                self.panel.site(node).seat.doubt();
                let error = failure.error();
                if !error.is_retryable() {
                    self.refusal = Some(self.panel.members.refusal(node, error));
                }
                let may_land = failure.may_land();
                self.leaving
                    .failed(node, may_land, clock::now(), &mut steps);
            }
        }
        steps
    }

    fn step(&self, step: Step) -> BoxFuture<'static, Done> {
        let panel = self.panel.clone();
        let terms = self.terms.clone();
        Box::pin(async move {
            match step {
                Step::Leave {
                    node,
                    tombstone,
                    after,
                } => {
                    if !after.is_zero() {
                        tokio::time::sleep(after).await;
                    }
                    Some((node, leave(&panel, &terms, node, tombstone).await))
                }
                Step::Call { node, waiter } => {
                    if let Err(error) = panel.site(node).tell(&waiter).await {
                        tracing::debug!(%error, "a waiter couldn't be told, and looks by itself");
                    }
                    None
                }
                Step::Decide(_) => None,
            }
        })
    }
}

async fn leave(panel: &Panel, terms: &Terms, node: Node, tombstone: bool) -> Result<Left, Failure> {
    let tombstone = if tombstone {
        terms.ttl * 2
    } else {
        Duration::ZERO
    };
    let args = [
        terms.owner.to_hex(),
        // Numbers of requests begin at one: releases are told apart by them.
        "0".to_owned(),
        millis(terms.keep).to_string(),
        millis(tombstone).to_string(),
    ];
    let keys = script::keys(&terms.name, terms.owner);
    panel.site(node).leave(&keys, &args).await
}

/// Counts a release until it has asked every node once that isn't away.
struct Ticket(watch::Sender<usize>);

impl Ticket {
    fn of(leaving: &watch::Sender<usize>) -> Self {
        leaving.send_modify(|leaving| *leaving += 1);
        Self(leaving.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.send_modify(|leaving| *leaving -= 1);
    }
}
