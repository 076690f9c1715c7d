//! What several nodes show of one lock, put together.

use std::time::Duration;

use leasehold_core::{Holder, Identity, Token};

use super::nodes::Quorum;

/// What one node shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// A mark of what is at the lock: of the owner, or of what a client of another make has put there, which may be any
    /// bytes. `None` while it is free.
    pub(crate) value: Option<String>,
    pub(crate) holder: Holder,
    /// The newest token that it accepted, or the floor it began with.
    pub(crate) counter: Option<Token>,
    pub(crate) waiters: Vec<Option<Identity>>,
}

/// What a majority shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The mark of what the holder has put at the lock on a majority of nodes, and who that is; a lock that several have a part
    /// of has no holder.
    pub(crate) holder: Option<(String, Holder)>,
    /// The newest token that may have been granted.
    pub(crate) last_token: Option<Token>,
    /// As the node with most of them shows them.
    pub(crate) waiters: Vec<Option<Identity>>,
}

/// Puts the views of the nodes that count together; `None` while fewer than a majority have answered.
pub(crate) fn sight(quorum: Quorum, views: &[View]) -> Option<Sight> {
    if views.len() < quorum.majority() {
        return None;
    }
    let with = |value: &str| -> Vec<&View> {
        let same = |view: &&View| view.value.as_deref() == Some(value);
        views.iter().filter(same).collect()
    };
    let values = views.iter().filter_map(|view| view.value.as_deref());
    let held = values
        .map(|value| (value, with(value)))
        .find(|(_, nodes)| nodes.len() >= quorum.majority());
    let longest = views.iter().max_by_key(|view| view.waiters.len());
    Some(Sight {
        holder: held.map(|(value, nodes)| (value.to_owned(), holder(quorum, &nodes))),
        last_token: views.iter().filter_map(|view| view.counter).max(),
        waiters: longest.map(|view| view.waiters.clone()).unwrap_or_default(),
    })
}

/// The holder as the nodes show it on which it holds. Those that didn't take its token show none.
fn holder(quorum: Quorum, nodes: &[&View]) -> Holder {
    let newest = nodes.iter().max_by_key(|view| view.holder.token);
    let mut holder = newest.map_or(Holder::new(None, None), |view| view.holder.clone());
    // It ends when it has a majority no longer. No expiry is the longest.
    let mut ends: Vec<Duration> = nodes
        .iter()
        .map(|view| view.holder.expires_in.unwrap_or(Duration::MAX))
        .collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    let end = ends.get(quorum.majority() - 1).copied();
    holder.expires_in = end.filter(|end| *end != Duration::MAX);
    holder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(value: &str, token: u64, seconds: u64) -> View {
        let token = Token::new(token);
        View {
            value: (!value.is_empty()).then(|| value.to_owned()),
            holder: Holder::new(token, Some(Duration::from_secs(seconds))),
            counter: token,
            waiters: Vec::new(),
        }
    }

    #[test]
    fn the_holder_is_who_has_a_majority_with_the_token_that_a_majority_wrote() {
        let quorum = Quorum::of(5).unwrap();
        let views = [
            view("me", 7, 9),
            view("me", 7, 8),
            view("other", 3, 30),
            view("me", 5, 4),
            view("me", 7, 2),
        ];
        let (value, holder) = sight(quorum, &views).unwrap().holder.unwrap();
        assert_eq!((value.as_str(), holder.token), ("me", Token::new(7)));
        assert_eq!(holder.expires_in, Some(Duration::from_secs(4)));
    }

    #[test]
    fn a_split_lock_has_no_holder_and_a_minority_shows_nothing() {
        let quorum = Quorum::of(3).unwrap();
        let views = [view("a", 1, 9), view("b", 2, 9), view("", 3, 0)];
        let seen = sight(quorum, &views).unwrap();
        assert_eq!((seen.holder, seen.last_token), (None, Token::new(3)));
        assert_eq!(sight(quorum, &views[..1]), None);
    }
}
