//! What a renewal's answers prove, as a decision without input or output.
//!
//! A leader that is stuck and has been replaced goes on answering keep-alives, and the new one doesn't hear of them.
//! So a keep-alive counts only if the same member was in the same term before it was sent, when it was answered, and
//! when a quorum read was answered that was sent after that: then the leader of that term was the leader all along,
//! and it is the one that renewed the lease. The read is of the lease's own key, the canary, so that it also shows
//! that the lease is there.

use crate::wire::Header;

/// A member and its term at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) member: u64,
    pub(crate) term: u64,
}

impl Witness {
    pub(crate) fn of(header: &Header) -> Self {
        Self {
            member: header.member_id,
            term: header.raft_term,
        }
    }
}

/// The answers of one renewal, in the order they came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    /// Who had answered last when the keep-alive was sent.
    pub(crate) before: Option<Witness>,
    /// Who answered the keep-alive.
    pub(crate) renewed: Witness,
    /// Whether it said that the lease is there.
    pub(crate) alive: bool,
    /// Who answered the quorum read.
    pub(crate) read: Witness,
    /// Whether the canary was there.
    pub(crate) canary: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The lease lasts its TTL from the send of the keep-alive.
    Renewed,
    /// The lease has ended.
    Gone,
    /// These answers prove nothing: renew again.
    Again,
}

pub(crate) fn verdict(evidence: Evidence) -> Verdict {
    // A quorum read is believed whoever answers it.
    if !evidence.canary {
        return Verdict::Gone;
    }
    let unbroken = evidence.before == Some(evidence.renewed) && evidence.renewed == evidence.read;
    if unbroken && evidence.alive {
        Verdict::Renewed
    } else {
        Verdict::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Witness = Witness { member: 1, term: 5 };
    const LATER: Witness = Witness { member: 1, term: 6 };
    const OTHER: Witness = Witness { member: 2, term: 5 };

    fn evidence() -> Evidence {
        Evidence {
            before: Some(OLD),
            renewed: OLD,
            alive: true,
            read: OLD,
            canary: true,
        }
    }

    #[test]
    fn a_renewal_within_one_term_of_one_member_counts() {
        assert_eq!(verdict(evidence()), Verdict::Renewed);
    }

    #[test]
    fn a_stuck_old_leaders_keep_alive_doesnt_count() {
        // It answers in its old term; the read waits until it has followed the new leader.
        let stuck = Evidence {
            read: LATER,
            ..evidence()
        };
        assert_eq!(verdict(stuck), Verdict::Again);
    }

    #[test]
    fn a_keep_alive_forwarded_to_the_old_leader_doesnt_count() {
        // The member learns of the new term while the old leader's answer is under way.
        let forwarded = Evidence {
            renewed: LATER,
            read: LATER,
            ..evidence()
        };
        assert_eq!(verdict(forwarded), Verdict::Again);
    }

    #[test]
    fn members_terms_dont_vouch_for_one_another() {
        for mixed in [
            Evidence {
                before: Some(OTHER),
                ..evidence()
            },
            Evidence {
                before: None,
                ..evidence()
            },
            Evidence {
                read: OTHER,
                ..evidence()
            },
        ] {
            assert_eq!(verdict(mixed), Verdict::Again);
        }
    }

    #[test]
    fn only_a_quorum_read_ends_a_lease() {
        let denied = Evidence {
            alive: false,
            ..evidence()
        };
        assert_eq!(verdict(denied), Verdict::Again);
        for gone in [
            Evidence {
                canary: false,
                ..evidence()
            },
            Evidence {
                canary: false,
                read: LATER,
                ..evidence()
            },
            Evidence {
                canary: false,
                before: None,
                ..evidence()
            },
        ] {
            assert_eq!(verdict(gone), Verdict::Gone);
        }
    }
}
