//! All nodes of a store, and which of them count.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Error, ErrorKind, Owner, Result, background};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::census::{self, Census};
use super::config::Config;
use super::inbox::Waiters;
use super::members::Standing;
use super::nodes::{Node, Nodes, Quorum};
use super::seat::Seat;
use super::site::Site;
use super::telling::{self, Telling};
use crate::backend::Descriptions;
use crate::keys::FAMILY;
use crate::mailbox::lock;
use crate::renewer::millis;

/// What all contenders of a client share.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) members: Arc<Members>,
    /// Where this process is told, at every node.
    pub(super) channel: Arc<str>,
    pub(super) waiters: Waiters,
    pub(super) described: Descriptions,
    /// Releases that have not asked every node once that isn't away.
    pub(super) leaving: watch::Sender<usize>,
    censuses: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

/// The nodes, and what is known of them.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) quorum: Quorum,
    pub(super) names: Vec<String>,
    pub(super) sites: Vec<Arc<Site>>,
    /// The longest TTL that a majority knows, in milliseconds.
    longest: AtomicU64,
    newest: Mutex<Census>,
    pub(super) doubted: Arc<Notify>,
}

impl Panel {
    /// Connects to the nodes, and finds out which of them count.
    pub(super) async fn connect(config: &Config) -> Result<Self> {
        let channel: Arc<str> = format!("{FAMILY}c:{}", Owner::random()?.to_hex()).into();
        let waiters = Waiters::default();
        let doubted = Arc::new(Notify::new());
        let mut sites = Vec::new();
        for (node, at) in (0..).zip(&config.nodes) {
            let client = config.dialer.node(at)?;
            let seat = Seat::new(at.to_string(), client, config.node_timeout, doubted.clone());
            sites.push(Arc::new(Site::new(node, seat, &channel, &waiters)?));
        }
        let members = Arc::new(Members {
            quorum: config.quorum,
            names: config.nodes.iter().map(ToString::to_string).collect(),
            sites,
            longest: AtomicU64::new(0),
            newest: Mutex::default(),
            doubted,
        });
        let (censuses, asked) = mpsc::unbounded_channel();
        background::spawn(census::watch(members.clone(), asked))?;
        let panel = Self {
            members,
            channel,
            waiters,
            described: Descriptions::default(),
            leaving: watch::Sender::new(0),
            censuses,
        };
        panel.census().await;
        Ok(panel)
    }

    pub(super) fn quorum(&self) -> Quorum {
        self.members.quorum
    }

    pub(super) fn site(&self, node: Node) -> &Arc<Site> {
        &self.members.sites[usize::from(node)]
    }

    /// Has all nodes judged, now.
    pub(super) async fn census(&self) {
        let (answer, done) = oneshot::channel();
        if self.censuses.send(answer).is_ok() {
            // Without an answer the keeper is gone, and nothing is granted any more.
            let _ = done.await;
        }
    }

    /// The nodes that are to be asked for a lock.
    ///
    /// # Errors
    /// Where those that may be asked are no majority.
    pub(super) async fn counted(&self) -> Result<Nodes> {
        if let Some(counted) = self.members.prompt() {
            return Ok(counted);
        }
        self.census().await;
        if let Some(counted) = self.members.prompt() {
            return Ok(counted);
        }
        Err(self.newest().no_majority(&self.members))
    }

    /// What the newest census found.
    pub(super) fn newest(&self) -> Census {
        lock(&self.members.newest).clone()
    }

    /// Has a majority know that locks may last this long, before one does: so long is a node out of it that lost its
    /// memory.
    pub(super) async fn raise(&self, ttl: Duration) -> Result<()> {
        if millis(ttl) <= self.members.longest.load(Ordering::Acquire) {
            return Ok(());
        }
        let raised = self
            .ask(self.counted().await?, |site| site.raise(ttl))
            .await?;
        let know = raised.iter().filter(|know| **know);
        if know.count() >= self.quorum().majority() {
            let longest = &self.members.longest;
            longest.fetch_max(millis(ttl), Ordering::AcqRel);
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("too few nodes could be told of a TTL of {ttl:?}"),
        ))
    }

    /// Asks these nodes; what they answered.
    ///
    /// # Errors
    /// Where no majority answered.
    pub(super) async fn ask<'a, T, F: Future<Output = Result<T>>>(
        &'a self,
        nodes: Nodes,
        question: impl Fn(&'a Site) -> F,
    ) -> Result<Vec<T>> {
        let asked = nodes.iter().map(|node| question(self.site(node)));
        let mut answers = Vec::new();
        let mut failures = Vec::new();
        let mut answered = Nodes::NONE;
        for (node, answer) in nodes.iter().zip(join_all(asked).await) {
            match answer {
                Ok(answer) => {
                    answered.insert(node);
                    answers.push(answer);
                }
                Err(error) => failures.push((node, error)),
            }
        }
        if self.quorum().has(answered) {
            return Ok(answers);
        }
        let failures = failures.iter().map(|(node, error)| (*node, error));
        Err(self.members.shortage(answered, failures))
    }

    /// Until every release that has begun has asked all nodes that aren't away.
    pub(super) async fn settled(&self) {
        let mut leaving = self.leaving.subscribe();
        // The sender is ours.
        let _ = leaving.wait_for(|leaving| *leaving == 0).await;
    }

    pub(super) fn close(&self) {
        for site in &self.members.sites {
            site.close();
        }
    }
}

impl Members {
    pub(super) fn counted(&self) -> Nodes {
        self.which(Seat::counts)
    }

    /// Those that count, without the ones that are silent where a majority is left; `None` where they are none.
    fn prompt(&self) -> Option<Nodes> {
        let counted = self.counted();
        let prompt = counted.without(self.which(Seat::is_silent));
        [prompt, counted]
            .into_iter()
            .find(|nodes| self.quorum.has(*nodes))
    }

    /// Those that were found silent by a census too: what is asked of them is for the background.
    pub(super) fn away(&self) -> Nodes {
        self.which(|seat| seat.is_silent() && !seat.counts())
    }

    fn which(&self, so: impl Fn(&Seat) -> bool) -> Nodes {
        let sites = (0..).zip(&self.sites);
        let those = sites.filter(|(_, site)| so(&site.seat));
        those.map(|(node, _)| node).collect()
    }

    pub(super) fn name(&self, node: Node) -> &str {
        self.names
            .get(usize::from(node))
            .map_or("?", String::as_str)
    }

    /// The error where too few answered, the others having failed so.
    pub(super) fn shortage<'a>(
        &self,
        answered: Nodes,
        failures: impl Iterator<Item = (Node, &'a Error)>,
    ) -> Error {
        let mut telling = Telling::default();
        for (node, error) in failures {
            if !error.is_retryable() {
                return self.refusal(node, error);
            }
            telling.add_error(self.name(node), error);
        }
        let sentence = format!(
            "{} of {} nodes answered, and it takes {}",
            answered.len(),
            self.quorum.all().len(),
            self.quorum.majority()
        );
        let error = Error::new(ErrorKind::Unavailable, telling.after(&sentence));
        if answered.is_empty() {
            error
        } else {
            error.answered()
        }
    }

    /// The error of one node where waiting doesn't help: it is as wrong for all.
    pub(super) fn refusal(&self, node: Node, error: &Error) -> Error {
        let what = format!("{}: {}", self.name(node), telling::told(error));
        Error::new(error.kind(), what)
    }

    /// From now on the nodes count that this census found sound.
    pub(super) fn take_in(&self, census: Census) {
        let mut longest = Vec::new();
        for (at, site) in self.sites.iter().enumerate() {
            let account = census.accounts.get(at);
            let report = account.and_then(|account| Some(&account.as_ref().ok()?.report));
            if report.is_some() {
                site.seat.heard();
            }
            let sound = census.standings.get(at) == Some(&Standing::Sound);
            let report = report.filter(|_| sound);
            site.seat.judged(report.map(|report| report.run.as_str()));
            let record = report.and_then(|report| report.record.as_ref());
            longest.extend(record.map(|record| millis(record.longest)));
        }
        longest.sort_unstable_by(|a, b| b.cmp(a));
        let known = longest.get(self.quorum.majority() - 1).copied();
        self.longest.store(known.unwrap_or(0), Ordering::Release);
        let mut newest = lock(&self.newest);
        for (at, standing) in census.standings.iter().enumerate() {
            if newest.standings.get(at) != Some(standing)
                && let Standing::Recovering(_) | Standing::Forgot | Standing::Promoted = standing
            {
                tracing::warn!(node = %self.sites[at].seat.name(), ?standing, "a node lost its memory and doesn't count");
            }
        }
        *newest = census;
    }
}
