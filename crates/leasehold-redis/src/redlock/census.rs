//! The census: what every node says of itself, judged, and entered in the nodes' records.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Error, ErrorKind, Result, clock};
use tokio::sync::{mpsc, oneshot};

use super::members::{self, Judgement, Memory, Refusal, Report, Standing};
use super::nodes::Node;
use super::panel::Members;
use super::site::Account;
use super::telling::Telling;

/// A node is entered once all have a record, and counts once a majority has it in theirs; another client may be at
/// the same.
const ROUNDS_MAX: u32 = 6;
/// How often all are asked before too many count as away to tell what was granted: one answer may be late.
const REFUSED_MAX: u32 = 3;
/// How often is looked after nodes that don't count.
const AGAIN: Duration = Duration::from_secs(1);
/// The least time between two.
const REST: Duration = Duration::from_millis(50);

/// What a node said of itself, or why it said nothing.
type Statement = Result<Arc<Account>, Arc<Error>>;

/// What a census found.
#[derive(Clone, Debug, Default)]
pub(super) struct Census {
    pub(super) accounts: Vec<Statement>,
    /// Empty where the nodes can't be used.
    pub(super) standings: Vec<Standing>,
    /// What each node has of the past, where they can't be judged.
    pub(super) memories: Vec<Option<Memory>>,
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
    let mut before = Vec::new();
    loop {
        round += 1;
        let begun = clock::now();
        let mut accounts = accounts(members, std::mem::take(&mut before)).await;
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
                    memories: members::memories(members.quorum, &members.names, &reports),
                    refusal: Some(refusal),
                };
            }
        };
        let recorded = judgement.recorded();
        if recorded.is_empty() || round == ROUNDS_MAX {
            return Census {
                accounts,
                standings: judgement.standings,
                memories: Vec::new(),
                refusal: None,
            };
        }
        let entered = recorded.iter().filter_map(|node| {
            let at = usize::from(node);
            let report = reports.get(at)?.as_ref()?;
            let entered = members.sites.get(at)?.enter(&judgement.entry, report);
            Some(async move { (at, entered.await) })
        });
        for (at, entered) in join_all(entered).await {
            if let Err(error) = entered {
                tracing::debug!(%error, "a node's record couldn't be written");
                // One without the right is as one that refuses to be asked.
                if !error.is_retryable() {
                    accounts[at] = Err(Arc::new(error));
                }
            }
        }
        before = accounts;
    }
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

impl Census {
    /// The error where the nodes are no set that can ever be used.
    pub(super) fn unusable(&self, members: &Members) -> Option<Error> {
        let name = |node: &Node| members.name(*node);
        // What is no independent server says so itself.
        if let Some(wrong) = self.refused(members)
            && wrong.kind() == ErrorKind::Invalid
        {
            return Some(wrong);
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
        let refused = || self.refused(members);
        if let Some(error) = self.unusable(members).or_else(refused) {
            return error;
        }
        let error = Error::new(ErrorKind::Unavailable, self.shortage(members));
        if self.accounts.iter().any(Result::is_ok) {
            error.answered()
        } else {
            error
        }
    }

    fn shortage(&self, members: &Members) -> String {
        let need = members.quorum.majority();
        let all = members.quorum.all();
        let mut telling = self.others(members);
        let sentence = match &self.refusal {
            Some(Refusal::NoSoundMajority { answered }) if *answered == all => {
                telling.advise(REJOIN);
                "too many nodes have lost their memory to tell what was granted".to_owned()
            }
            Some(Refusal::NoSoundMajority { .. }) => {
                telling.advise("bring back those that are away");
                telling.advise(REJOIN);
                "no majority of the nodes can tell what was granted, and those that could may be away".to_owned()
            }
            Some(Refusal::TooFew { answered }) => {
                let all = all.len();
                format!(
                    "{} of {all} nodes answer, and it takes {need}",
                    answered.len()
                )
            }
            _ => {
                let sound = self.standings.iter().filter(|one| **one == Standing::Sound);
                let all = all.len();
                format!(
                    "{} of {all} nodes count, and it takes {need}",
                    sound.count()
                )
            }
        };
        telling.after(&sentence)
    }

    /// A node that refuses the user is not one that is away.
    fn refused(&self, members: &Members) -> Option<Error> {
        let accounts = (0..).zip(&self.accounts);
        let mut errors =
            accounts.filter_map(|(node, account)| Some((node, account.as_ref().err()?)));
        let (node, error) = errors.find(|(_, error)| !error.is_retryable())?;
        Some(members.refusal(node, error))
    }

    /// The nodes that don't count, each with the reason.
    pub(super) fn others(&self, members: &Members) -> Telling {
        let mut telling = Telling::default();
        for node in members.quorum.all().iter() {
            let name = members.name(node);
            let at = usize::from(node);
            if let Some(Err(error)) = self.accounts.get(at) {
                telling.add_error(name, error);
            } else if let Some(reason) = self.standings.get(at).and_then(reason) {
                telling.add_alone(name, reason);
            } else if let Some(Some(memory)) = self.memories.get(at)
                && let Some(lack) = lack(*memory)
            {
                telling.add(name, lack);
            }
        }
        telling
    }
}

/// What an operator may say where no majority can tell.
const REJOIN: &str =
    "once nothing relies on a lock from before, say so with `leasehold redlock rejoin`";

/// Why a node doesn't count that was judged.
pub(super) fn reason(standing: &Standing) -> Option<String> {
    match standing {
        Standing::Sound => None,
        Standing::Entering => Some("is being entered".to_owned()),
        Standing::Recovering(rest) => Some(format!(
            "is recovering: it lost its memory, and counts again in {} s",
            rest.as_secs() + 1
        )),
        Standing::Forgot => Some("has lost its record while it ran".to_owned()),
        Standing::Promoted => {
            Some("was a replica, and may lack what the node it stands for answered last".to_owned())
        }
        Standing::Away => Some("is away".to_owned()),
    }
}

/// What the memory lacks of a node that can't be judged.
pub(super) fn lack(memory: Memory) -> Option<&'static str> {
    match memory {
        Memory::Kept => None,
        Memory::Restarted => Some("started again since, and may have forgotten the last of it"),
        Memory::Bare => Some("came without a memory"),
        Memory::Dropped => Some("lost the record while running"),
    }
}
