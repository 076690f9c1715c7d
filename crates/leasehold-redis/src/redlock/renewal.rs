//! One renewal of a hold, on every node.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::backend::{LossReason, Renewal};
use leasehold_core::{Name, Owner, clock};

use super::hold::{Extended, Extension};
use super::nodes::Nodes;
use super::panel::Panel;

/// Whose hold it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'a> {
    pub(super) name: &'a Name,
    pub(super) owner: Owner,
}

/// Asks the nodes that it is held on for `ttl` more. `None` where too few answered, which extends nothing and ends
/// nothing.
pub(super) async fn renew(
    panel: &Panel,
    held: Held<'_>,
    on: Nodes,
    ttl: Duration,
) -> Option<Renewal> {
    let quorum = panel.quorum();
    let mut extension = Extension::new(quorum, on, ttl, clock::now());
    let ask = |node| {
        let site = panel.site(node).clone();
        async move {
            let answer = match site.renewer.renew(held.name, held.owner, ttl).await {
                Ok(renewal) => renewal.into(),
                Err(error) => {
                    tracing::debug!(node = site.seat.name(), %error, "a node's renewal is unanswered");
                    site.seat.doubt();
                    Extended::Unknown
                }
            };
            (node, answer)
        }
    };
    let mut answers: FuturesUnordered<_> = on.iter().map(ask).collect();
    let mut verdict = None;
    for node in quorum.all().without(on).iter() {
        verdict = verdict.or(extension.answered(node, Extended::Unknown));
    }
    while verdict.is_none() {
        let Some((node, answer)) = answers.next().await else {
            break;
        };
        verdict = extension.answered(node, answer);
    }
    drop(answers);
    match verdict.flatten()? {
        Renewal::Lost(_) if was_broken(panel, held).await => {
            Some(Renewal::Lost(LossReason::Broken))
        }
        renewal => Some(renewal),
    }
}

/// Whether it was an operator who took this hold away, as far as the nodes that aren't silent can say.
pub(super) async fn was_broken(panel: &Panel, held: Held<'_>) -> bool {
    let sites = panel.members.sites.iter();
    let mut answers: FuturesUnordered<_> = sites
        .filter(|site| !site.seat.is_silent())
        .map(|site| site.renewer.was_broken(held.name, held.owner))
        .collect();
    while let Some(broken) = answers.next().await {
        if broken {
            return true;
        }
    }
    false
}
