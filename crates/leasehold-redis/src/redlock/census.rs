//! The census: what every node says of itself, judged, and entered in the nodes' records.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Error, ErrorKind, Result, clock};
use tokio::sync::{mpsc, oneshot};

use super::members::{self, Judgement, Refusal, Report, Standing};
use super::nodes::{Node, Nodes};
use super::panel::Members;
use super::site::Account;

/// A node is entered once all have a record, and counts once a majority has it in theirs; another client may be at
/// the same.
const ROUNDS_MAX: u32 = 6;
/// How often all are asked before too many count as away to tell what was granted: one answer may be late.
const REFUSED_MAX: u32 = 3;
/// How often is looked after nodes that don't count.
const AGAIN: Duration = Duration::from_secs(1);
/// The least time between two.
const REST: Duration = Duration::from_millis(50);

/// What a census found.
/// What a node said of itself, or why it said nothing.
type Statement = Result<Arc<Account>, Arc<Error>>;

#[derive(Clone, Debug, Default)]
pub(super) struct Census {
    pub(super) accounts: Vec<Statement>,
    /// Empty where the nodes can't be used.
    pub(super) standings: Vec<Standing>,
    pub(super) refusal: Option<Refusal>,
}

/// Judges the nodes whenever that is asked for, when one is doubted, and from time to time while one doesn't count;
/// until nobody can ask any more.
pub(super) async fn watch(
    members: Arc<Members>,
    mut asked: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
) {
    let mut all_count = true;
    loop {
        let mut waiting = Vec::new();
        let again = async {
            if all_count {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(AGAIN).await;
        };
        tokio::select! {
            answer = asked.recv() => match answer {
                Some(answer) => waiting.push(answer),
                None => return,
            },
            () = members.doubted.notified() => {}
            () = again => {}
        }
        while let Ok(answer) = asked.try_recv() {
            waiting.push(answer);
        }
        members.take_in(take(&members, members::judge).await);
        all_count = members.counted() == members.quorum.all();
        for answer in waiting {
            // Who gave up waiting needs no answer.
            let _ = answer.send(());
        }
        tokio::time::sleep(REST).await;
    }
}

type Judge = fn(super::nodes::Quorum, &[String], &[Option<Report>]) -> Result<Judgement, Refusal>;

/// One census: by `judge`, until nothing is left to be entered.
pub(super) async fn take(members: &Members, judge: Judge) -> Census {
    let mut round = 0;
    loop {
        round += 1;
        let begun = clock::now();
    let mut before = Vec::new();
        let accounts = accounts(members, std::mem::take(&mut before)).await;
        let took = clock::now().since(begun).any;
        let report = |account: &Statement| {
            let mut report = account.as_ref().ok()?.report.clone();
            report.uptime = report.uptime.saturating_sub(took);
            Some(report)
        };
        let reports: Vec<Option<Report>> = accounts.iter().map(report).collect();
        let judgement = match judge(members.quorum, &members.names, &reports) {
            Ok(judgement) => judgement,
            Err(Refusal::NoSoundMajority { answered })
                if answered != members.quorum.all() && round < REFUSED_MAX =>
            {
                continue;
            }
            Err(refusal) => {
                return Census {
                    accounts,
                    standings: Vec::new(),
                    refusal: Some(refusal),
                };
            }
        };
        let done = !judgement.standings.contains(&Standing::Entering);
        if done || round == ROUNDS_MAX {
            return Census {
                accounts,
                standings: judgement.standings,
                refusal: None,
            };
        }
        let recorded = judgement.recorded();
        let entered = recorded.iter().filter_map(|node| {
            let report = reports.get(usize::from(node))?.as_ref()?;
            let site = members.sites.get(usize::from(node))?;
            Some(site.enter(&judgement.entry, report))
        });
        for entered in join_all(entered).await {
            if let Err(error) = entered {
                tracing::debug!(%error, "a node's record couldn't be written");
            }
        }
    }
}

impl Census {
    /// The error where the nodes are no set that can ever be used.
    pub(super) fn unusable(&self, members: &Members) -> Option<Error> {
        let name = |node: &Node| members.name(*node);
        // What is no independent server says so itself.
        if let Some(wrong) = self.refused(members)
            && wrong.kind() == ErrorKind::Invalid
        before = accounts;
        {
            return Some(wrong);
        }
/// Asks every node; but those that could be done without in the round before aren't waited for once more.
async fn accounts(members: &Members, before: Vec<Statement>) -> Vec<Statement> {
    let mut before = before.into_iter();
    let asked = members.sites.iter().map(|site| {
        let before = before.next();
        async move {
            match before {
                Some(Err(error)) => Err(error),
                _ => site.account().await.map(Arc::new).map_err(Arc::new),
            }
        }
    });
    join_all(asked).await
}

        let what = match self.refusal.as_ref()? {
            Refusal::Same(one, other) => format!(
                "{} and {} are one server, and one server has one vote; name each once",
                name(one),
                name(other)
            ),
            Refusal::Replica(node) => format!(
                "{} is a replica; the nodes of Redlock are independent masters",
                name(node)
            ),
            Refusal::OtherSet(node, names) => format!(
                "{} belongs to the nodes {}; every client must name the same nodes, written alike, or two majorities \
                 have none in common",
                name(node),
                names.join(",")
            ),
            Refusal::TooFew { .. } | Refusal::NoSoundMajority { .. } => return None,
        };
        Some(Error::new(ErrorKind::Invalid, what))
    }

    /// Why no majority counts.
    pub(super) fn no_majority(&self, members: &Members) -> Error {
        if let Some(error) = self.unusable(members) {
            return error;
        }
        if let Some(refused) = self.refused(members) {
            return refused;
        }
        let need = members.quorum.majority();
        let all = members.quorum.all().len();
        let what = match &self.refusal {
            Some(Refusal::NoSoundMajority { answered }) => {
                return Error::new(
                    ErrorKind::Unavailable,
                    self.no_sound_majority(members, *answered),
                );
            }
            Some(Refusal::TooFew { answered }) => {
                format!(
                    "{} of {all} nodes answer, and it takes {need}",
                    answered.len()
                )
            }
            _ => {
                let sound = self.standings.iter().filter(|one| **one == Standing::Sound);
                format!(
                    "{} of {all} nodes count, and it takes {need}",
                    sound.count()
                )
            }
        };
        Error::new(
            ErrorKind::Unavailable,
            format!("{what}: {}", self.others(members).join("; ")),
        )
    }

    fn no_sound_majority(&self, members: &Members, answered: Nodes) -> String {
        if answered == members.quorum.all() {
            return "too many nodes have lost their memory to tell what was granted; once nothing relies on a lock \
                    from before, say so with `leasehold redlock rejoin`"
                .to_owned();
        }
        format!(
            "no majority of the nodes can tell what was granted, and those that could may be away: {}; bring them \
             back, or, once nothing relies on a lock from before, say so with `leasehold redlock rejoin`",
            self.others(members).join("; ")
        )
    }

    /// A node that refuses the user is not one that is away.
    fn refused(&self, members: &Members) -> Option<Error> {
        let accounts = (0..).zip(&self.accounts);
        let mut errors =
            accounts.filter_map(|(node, account)| Some((node, account.as_ref().err()?)));
        let (node, error) = errors.find(|(_, error)| !error.is_retryable())?;
        let what = format!("{}: {}", members.name(node), told(error));
        Some(Error::new(error.kind(), what))
    }

    /// The nodes that don't count, each with the reason.
    pub(super) fn others(&self, members: &Members) -> Vec<String> {
        let all = members.quorum.all();
        let others = all.iter().filter_map(|node| {
            let reason = self.reason(node)?;
            Some(format!("{} {reason}", members.name(node)))
        });
        others.collect()
    }

    /// Why a node doesn't count.
    pub(super) fn reason(&self, node: Node) -> Option<String> {
        if let Some(Err(error)) = self.accounts.get(usize::from(node)) {
            return Some(format!("can't be asked: {}", told(error)));
        }
        match self.standings.get(usize::from(node))? {
            Standing::Sound => None,
            Standing::Entering => Some("is being entered".to_owned()),
            Standing::Recovering(rest) => Some(format!(
                "is recovering: it lost its memory, and counts again in {} s",
                rest.as_secs() + 1
            )),
            Standing::Forgot => Some("has lost its record while it ran".to_owned()),
            Standing::Away => Some("is away".to_owned()),
        }
    }
}

/// An error with its cause, as a part of a sentence.
pub(super) fn told(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{} ({cause})", error.message()),
        None => error.message().to_owned(),
    }
}
