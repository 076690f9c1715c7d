//! What `check` says of the nodes.

use leasehold_core::backend::{Finding, Verdict};

use super::census::{self, Census};
use super::members::{Memory, Standing};
use super::nodes::Node;
use super::panel::Members;
use super::site::Account;
use super::telling::told;
use crate::check::{self, finding};

pub(super) fn of(census: &Census, members: &Members) -> Vec<Finding> {
    let mut findings = vec![majority(census, members)];
    for (node, account) in (0..).zip(&census.accounts) {
        let of_node = match account {
            Ok(account) => of_account(census, node, account),
            Err(error) => vec![finding(
                Verdict::Bad,
                format!("can't be asked: {}", told(error)),
                "it has no vote until it answers",
            )],
        };
        let name = members.name(node);
        findings.extend(of_node.into_iter().map(|mut finding| {
            finding.what = format!("{name}: {}", finding.what);
            finding
        }));
    }
    findings
}

/// Whether locks can be had, and how many more nodes may fail.
fn majority(census: &Census, members: &Members) -> Finding {
    let all = members.quorum.all().len();
    let need = members.quorum.majority();
    let sound = census
        .standings
        .iter()
        .filter(|one| **one == Standing::Sound);
    let count = sound.count();
    let what = format!("{count} of {all} nodes count, and it takes {need}");
    if count == all {
        return finding(Verdict::Good, what, "");
    }
    if count >= need {
        let comes_back = |one: &Standing| {
            matches!(
                one,
                Standing::Sound | Standing::Entering | Standing::Recovering(_)
            )
        };
        let advice = if census.standings.iter().all(comes_back) {
            "the others count again by themselves; until then fewer may be away"
        } else {
            "bring the others back while it lasts"
        };
        return finding(Verdict::Warning, what, advice);
    }
    finding(
        Verdict::Bad,
        census.no_majority(members).message().to_owned(),
        "",
    )
}

fn of_account(census: &Census, node: Node, account: &Account) -> Vec<Finding> {
    let info = &account.info;
    vec![
        standing(census, node),
        check::version(info),
        check::scripts(info),
        check::eviction(info),
        replicas(account),
        memory(account),
    ]
}

/// Whether it counts, or else why not; where that can't be judged, what it remembers.
fn standing(census: &Census, node: Node) -> Finding {
    let at = usize::from(node);
    let Some(standing) = census.standings.get(at) else {
        return remembering(census.memories.get(at).copied().flatten());
    };
    match (standing, census::reason(standing)) {
        (Standing::Forgot | Standing::Promoted, Some(reason)) => {
            finding(Verdict::Bad, reason, AGAIN)
        }
        (_, Some(reason)) => finding(Verdict::Warning, reason, ""),
        (_, None) => finding(Verdict::Good, "it counts".to_owned(), ""),
    }
}

/// What to do about a node that can't say since when it has forgotten.
const AGAIN: &str = "start it again and it recovers by itself; or, once nothing relies on a lock from before, say so \
                     with `leasehold redlock rejoin`";

fn remembering(memory: Option<Memory>) -> Finding {
    let Some(lack) = memory.and_then(census::lack) else {
        return finding(
            Verdict::Good,
            "it remembers what it granted, and counts once a majority does".to_owned(),
            "",
        );
    };
    let advice = if memory == Some(Memory::Dropped) {
        "once nothing relies on a lock from before, say so with `leasehold redlock rejoin`"
    } else {
        "beside a majority that remembers it counts again after the longest TTL"
    };
    finding(Verdict::Warning, lack.to_owned(), advice)
}

fn replicas(account: &Account) -> Finding {
    match check::field(&account.info, "connected_slaves") {
        "0" => finding(
            Verdict::Good,
            "it has no replica that could take over".to_owned(),
            "",
        ),
        number => finding(
            Verdict::Warning,
            format!("it has {number} replica(s)"),
            "never make one a master in its place: a node that is away is what Redlock is made for, one that forgot is \
             not",
        ),
    }
}

fn memory(account: &Account) -> Finding {
    if account.report.durable {
        return finding(
            Verdict::Good,
            "it has on disk what it answers, and counts again at once after a restart".to_owned(),
            "",
        );
    }
    let longest = account.report.record.as_ref().map(|record| record.longest);
    let longest = longest.filter(|longest| !longest.is_zero());
    finding(
        Verdict::Warning,
        "it may forget at a restart".to_owned(),
        &format!(
            "then it has no vote for the longest TTL that was used{}; with appendonly yes and appendfsync always it has \
             at once",
            longest.map_or_else(String::new, |longest| format!(", {longest:?}"))
        ),
    )
}
