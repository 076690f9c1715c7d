//! Checks what the holders of one lock saw.
//!
//! With a unique, rising token on every grant, a history needs no search: sorted by token it either keeps the
//! rules or names the two holds that break them. Times are `CLOCK_BOOTTIME` nanoseconds of one machine, and
//! nothing is tolerated: not even a nanosecond of overlap.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One hold, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Its fencing token.
    pub token: u64,
    /// When its acquisition was called.
    pub called: u64,
    /// When its acquisition returned: from here on the holder believed.
    pub returned: u64,
    /// When the holder stopped to believe: the earliest of the release's call, the loss signal, the deadline
    /// it counted itself, and its death.
    pub until: u64,
}

/// What a store promises under the hazard that a history was recorded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No two holders at a time, and rising tokens.
    Exclusive,
    /// Rising tokens; the store lost its memory, so that two may have believed at a time.
    FenceOnly,
}

/// A rule that two holds break together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two grants carry the same token.
    SameToken(Hold, Hold),
    /// The first was over before the second was asked for, and yet its token is higher.
    TokenFell(Hold, Hold),
    /// Both believed at the same time.
    Overlap(Hold, Hold),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameToken(a, b) => write!(f, "two grants with one token: {a:?} and {b:?}"),
            Self::TokenFell(a, b) => write!(f, "the token fell from {a:?} to {b:?}"),
            Self::Overlap(a, b) => write!(
                f,
                "two holders for {} ns: {a:?} and {b:?}",
                a.until.min(b.until) - b.returned
            ),
        }
    }
}

impl std::error::Error for Violation {}

/// Checks all holds of one lock, in O(n log n).
///
/// # Errors
/// The first violation found, the most basic kind first.
pub fn check(holds: &[Hold], verdict: Verdict) -> Result<(), Violation> {
    let mut holds = holds.to_vec();
    holds.sort_unstable_by_key(|hold| hold.token);
    unique(&holds)?;
    rising(&holds)?;
    if verdict == Verdict::Exclusive {
        exclusive(&mut holds)?;
    }
    Ok(())
}

fn unique(by_token: &[Hold]) -> Result<(), Violation> {
    for pair in by_token.windows(2) {
        if pair[0].token == pair[1].token {
            return Err(Violation::SameToken(pair[0], pair[1]));
        }
    }
    Ok(())
}

/// Of all holds with lower tokens only the one that was asked for last can have begun after this one.
fn rising(by_token: &[Hold]) -> Result<(), Violation> {
    let mut latest: Option<Hold> = None;
    for hold in by_token {
        match latest {
            Some(lower) if lower.called > hold.returned => {
                return Err(Violation::TokenFell(*hold, lower));
            }
            Some(lower) if lower.called >= hold.called => {}
            _ => latest = Some(*hold),
        }
    }
    Ok(())
}

/// Of all holds that began earlier only the one that lasts longest can reach into this one.
fn exclusive(holds: &mut Vec<Hold>) -> Result<(), Violation> {
    // A grant that came too late to be believed overlaps nothing.
    holds.retain(|hold| hold.returned < hold.until);
    holds.sort_unstable_by_key(|hold| hold.returned);
    let mut longest: Option<Hold> = None;
    for hold in holds {
        match longest {
            Some(earlier) if earlier.until > hold.returned => {
                return Err(Violation::Overlap(earlier, *hold));
            }
            _ => longest = Some(*hold),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Verdict::{Exclusive, FenceOnly};
    use super::*;

    fn hold(token: u64, called: u64, returned: u64, until: u64) -> Hold {
        Hold {
            token,
            called,
            returned,
            until,
        }
    }

    #[test]
    fn a_clean_hand_over_passes_and_touching_is_not_overlapping() {
        let holds = [hold(1, 0, 1, 10), hold(2, 3, 10, 20), hold(9, 2, 25, 30)];
        assert_eq!(check(&holds, Exclusive), Ok(()));
        assert_eq!(check(&[], Exclusive), Ok(()));
    }

    #[test]
    fn one_nanosecond_of_two_holders_is_found() {
        let (a, b) = (hold(1, 0, 1, 11), hold(2, 3, 10, 20));
        assert_eq!(check(&[b, a], Exclusive), Err(Violation::Overlap(a, b)));
        assert_eq!(check(&[b, a], FenceOnly), Ok(()));
    }

    #[test]
    fn a_long_hold_is_compared_with_more_than_its_neighbour() {
        let (long, short, last) = (hold(1, 0, 1, 100), hold(2, 0, 2, 2), hold(3, 0, 50, 60));
        assert_eq!(
            check(&[long, short, last], Exclusive),
            Err(Violation::Overlap(long, last))
        );
    }

    #[test]
    fn one_token_for_two_grants_is_found() {
        let (a, b) = (hold(7, 0, 1, 2), hold(7, 3, 4, 5));
        for verdict in [Exclusive, FenceOnly] {
            assert!(matches!(
                check(&[a, b], verdict),
                Err(Violation::SameToken(..))
            ));
        }
    }

    #[test]
    fn a_token_that_fell_is_found_also_where_only_the_fence_counts() {
        let (a, b) = (hold(8, 0, 1, 2), hold(7, 3, 4, 5));
        for verdict in [Exclusive, FenceOnly] {
            assert_eq!(check(&[a, b], verdict), Err(Violation::TokenFell(a, b)));
        }
    }

    #[test]
    fn a_token_that_fell_long_ago_is_found() {
        let (early, late) = (hold(100, 0, 1, 2), hold(5, 50, 51, 52));
        let between = [hold(6, 3, 4, 5), hold(7, 6, 7, 8)];
        let holds = [early, late, between[0], between[1]];
        assert!(matches!(
            check(&holds, FenceOnly),
            Err(Violation::TokenFell(..))
        ));
    }

    #[test]
    fn tokens_of_acquisitions_in_flight_at_once_may_come_in_either_order() {
        let holds = [hold(2, 0, 10, 11), hold(1, 5, 20, 21)];
        assert_eq!(check(&holds, Exclusive), Ok(()));
    }

    /// The rules word for word, every pair compared with every other.
    fn check_slowly(holds: &[Hold], verdict: Verdict) -> bool {
        let pairs = || {
            holds
                .iter()
                .enumerate()
                .flat_map(|(at, a)| holds[at + 1..].iter().flat_map(move |b| [(a, b), (b, a)]))
        };
        pairs().all(|(a, b)| a.token != b.token)
            && pairs().all(|(a, b)| a.returned >= b.called || a.token < b.token)
            && (verdict == FenceOnly
                || pairs().all(|(a, b)| a.until.min(b.until) <= a.returned.max(b.returned)))
    }

    fn any_history() -> impl Strategy<Value = Vec<Hold>> {
        let one = (1_u64..12, 0_u64..60, 0_u64..10, 0_u64..8);
        prop::collection::vec(one, 0..8).prop_map(|holds| {
            holds
                .into_iter()
                .map(|(token, at, wait, length)| hold(token, at, at + wait, at + wait + length))
                .collect()
        })
    }

    /// Holds one after the other, each asked for at any time before it was granted.
    fn sound_history() -> impl Strategy<Value = Vec<Hold>> {
        let one = (1_u64..9, 0_u64..50, 0_u64..9, 0_u64..9);
        prop::collection::vec(one, 2..50).prop_map(|steps| {
            let (mut now, mut token) = (100, 0);
            steps
                .into_iter()
                .map(|(rise, wait, gap, length)| {
                    token += rise;
                    let returned = now + gap;
                    now = returned + length;
                    hold(token, returned - wait, returned, now)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn it_finds_what_comparing_all_pairs_finds(holds in any_history()) {
            for verdict in [Exclusive, FenceOnly] {
                prop_assert_eq!(check(&holds, verdict).is_ok(), check_slowly(&holds, verdict));
            }
        }

        #[test]
        fn a_sound_history_passes_and_one_bad_hold_in_it_is_found(
            holds in sound_history(),
            at in any::<prop::sample::Index>(),
        ) {
            prop_assert_eq!(check(&holds, Exclusive), Ok(()));
            let at = at.index(holds.len() - 1);
            let mut overlapping = holds.clone();
            overlapping[at].until = overlapping[at + 1].returned + 1;
            overlapping[at + 1].until = overlapping[at + 1].returned + 1;
            prop_assert!(matches!(check(&overlapping, Exclusive), Err(Violation::Overlap(..))));
            let mut twice = holds.clone();
            twice[at].token = twice[at + 1].token;
            prop_assert!(matches!(check(&twice, FenceOnly), Err(Violation::SameToken(..))));
        }
    }
}
