//! What `check` says of the nodes.

use leasehold_core::backend::{Finding, Verdict};

use super::census::{Census, told};
use super::members::Standing;
use super::nodes::Node;
use super::panel::Members;
use super::site::Account;
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
        return finding(
            Verdict::Warning,
            what,
            "bring the others back while it lasts",
        );
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

fn standing(census: &Census, node: Node) -> Finding {
    let standing = census.standings.get(usize::from(node)).copied();
    let reason = census.reason(node);
    match (standing, reason) {
        (Some(Standing::Sound), _) => finding(Verdict::Good, "it counts".to_owned(), ""),
        (Some(Standing::Forgot), Some(reason)) => finding(
            Verdict::Bad,
            reason,
            "start it again and it recovers by itself; or, once nothing relies on a lock from before, say so with \
             `leasehold redlock rejoin`",
        ),
        (_, Some(reason)) => finding(Verdict::Warning, reason, ""),
        (_, None) => finding(
            Verdict::Bad,
            "it doesn't count".to_owned(),
            "too few answer to tell whether it may; what they lack is said above and below",
        ),
    }
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
