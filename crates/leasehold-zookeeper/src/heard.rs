//! What the leader has heard of a session, as far as its client can tell; without input or output.
//!
//! The leader ends a session that it hasn't heard of for its timeout. A new connection is asked of the leader itself.
//! What comes later is heard by the server it is sent to, which tells the leader whom it has heard of only when it is
//! asked to, once in half a tick: that is so also of a request that the leader itself has answered. Half a tick is a
//! quarter of the timeout at most, so while requests follow each other, what the leader counts begins a quarter before
//! any of them; a ping follows each connection at once, so that there is something to tell. After a pause it begins
//! before the pause, and the leader may end the session right after it has answered: so a pause takes a new connection.

use std::time::Duration;

use leasehold_core::clock::Moment;

#[cfg(test)]
use crate::simulation::fault::{self, Fault};

#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// When what made the connection was sent.
    connected: Option<Moment>,
    /// When the newest request was sent that was answered since.
    last: Option<Moment>,
}

/// What a holder may count on at most.
pub(crate) fn usable(timeout: Duration) -> Duration {
    timeout * 3 / 4
}

impl Heard {
    /// A connection is made by what was sent then.
    pub(crate) fn connected(&mut self, sent: Moment) {
        self.connected = Some(sent);
        self.last = Some(sent);
    }

    /// Whether what is sent now follows a pause.
    pub(crate) fn paused(&self, now: Moment, timeout: Duration) -> bool {
        #[cfg(test)]
        if fault::is_put_in(Fault::IgnoresPauses) {
            return false;
        }
        self.last
            .is_none_or(|last| now.since(last).any > timeout / 4)
    }

    /// A write that was sent then is answered: how long after its send a holder may count on the session. None where it
    /// followed a pause.
    pub(crate) fn answered(&mut self, sent: Moment, timeout: Duration) -> Option<Duration> {
        let paused = self.paused(sent, timeout);
        self.last = self
            .last
            .filter(|last| last.boot > sent.boot)
            .or(Some(sent));
        if paused {
            return None;
        }
        let most = usable(timeout);
        let since = self.connected.map(|connected| sent.since(connected));
        Some(match since {
            // By then the leader has asked once, and heard of what follows a connection at once.
            Some(since) if since.steady < timeout * 5 / 16 => {
                most.min(timeout.saturating_sub(since.any))
            }
            _ => most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(8);

    fn at(ms: u64) -> Moment {
        let nanos = ms * 1_000_000;
        Moment {
            boot: nanos,
            monotonic: nanos,
            real: nanos,
        }
    }

    /// What a request is worth that is sent then, in milliseconds.
    fn worth(heard: &mut Heard, ms: u64) -> Option<u128> {
        let worth = heard.answered(at(ms), TIMEOUT);
        worth.map(|worth| worth.as_millis())
    }

    fn connected() -> Heard {
        let mut heard = Heard::default();
        heard.connected(at(0));
        heard
    }

    #[test]
    fn a_new_connection_is_asked_of_the_leader_and_what_follows_may_not_be_told_yet() {
        let mut heard = connected();
        assert_eq!(worth(&mut heard, 1_500), Some(6_000));
        assert_eq!(worth(&mut heard, 2_400), Some(5_600));
        assert_eq!(worth(&mut heard, 3_900), Some(6_000));
    }

    #[test]
    fn what_was_sent_before_the_connection_was_made_is_no_less() {
        let mut heard = Heard::default();
        heard.connected(at(1_000));
        assert_eq!(worth(&mut heard, 900), Some(6_000));
        assert_eq!(worth(&mut heard, 2_000), Some(6_000));
    }

    #[test]
    fn what_follows_a_pause_is_worth_nothing() {
        let mut heard = connected();
        for beat in 1..10 {
            assert!(worth(&mut heard, beat * 1_500).is_some());
        }
        assert!(!heard.paused(at(15_500), TIMEOUT));
        assert!(heard.paused(at(15_501), TIMEOUT));
        assert_eq!(worth(&mut heard, 15_501), None);
    }

    /// Only its wall clock tells a machine that was stopped.
    #[test]
    fn a_pause_by_any_clock_is_one() {
        let heard = connected();
        let now = Moment {
            real: at(2_500).real,
            ..at(10)
        };
        assert!(heard.paused(now, TIMEOUT));
    }
}
