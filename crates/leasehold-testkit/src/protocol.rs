//! What a test and its worker processes say to each other: one JSON object a line.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Client, Drift, Lock};
use serde::{Deserialize, Serialize};

use crate::history;

/// How a lock is to be held.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) renews: bool,
    pub(crate) hold_at_least: Duration,
    /// The share of the TTL that the holder doesn't count on, in parts per million, and nothing else. All
    /// processes of a test have one clock, so that zero is right too.
    pub(crate) margin_ppm: Option<u32>,
}

impl Terms {
    /// Renewed until its release, everything else as by default.
    pub(crate) fn renewed(ttl: Duration) -> Self {
        Self {
            ttl,
            renews: true,
            hold_at_least: Duration::ZERO,
            margin_ppm: None,
        }
    }

    /// Ends with its TTL.
    pub(crate) fn expiring(ttl: Duration) -> Self {
        Self {
            renews: false,
            ..Self::renewed(ttl)
        }
    }

    pub(crate) fn lock(&self, client: &Client, name: &str) -> leasehold::Result<Lock> {
        let lock = client
            .lock(name)?
            .ttl(self.ttl)
            .renew(self.renews)
            .hold_at_least(self.hold_at_least);
        Ok(match self.margin_ppm {
            Some(rate_ppm) => lock.drift(Drift {
                rate_ppm,
                slack: Duration::ZERO,
            }),
            None => lock,
        })
    }
}

/// How long to wait for a busy lock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

/// Several tasks that take one lock again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Crowd {
    pub(crate) name: String,
    pub(crate) tasks: u32,
    pub(crate) terms: Terms,
    /// Each acquisition takes one of these, by chance.
    pub(crate) waits: Vec<Wait>,
    /// How many holds a task is after.
    pub(crate) holds: u32,
    /// Tasks go on until their process has had so many holds, however long that takes.
    pub(crate) at_least: u32,
    /// Then they stop when this is over.
    pub(crate) lasts: Duration,
    /// Holds are extended by one more TTL first.
    pub(crate) extends: bool,
    /// Holds are given back after a random time up to this; without, they are left to end by themselves.
    pub(crate) gives_back: Option<Duration>,
    /// A file with a number that each holder reads and writes back one higher.
    pub(crate) counter: Option<PathBuf>,
}

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Acquire {
        hold: u64,
        name: String,
        terms: Terms,
        wait: Wait,
    },
    Release {
        hold: u64,
    },
    Drop {
        hold: u64,
    },
    Extend {
        hold: u64,
        ttl: Duration,
    },
    /// Asks the hold all the time whether it is still there, on several threads, until it says no.
    Stare {
        hold: u64,
    },
    Crowd(Crowd),
    /// Closes the client.
    Close,
}

/// What a worker has to say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    Ready,
    Granted {
        hold: u64,
        token: u64,
    },
    Busy {
        hold: u64,
    },
    /// The loss was told of, with this reason, at this boot time.
    Lost {
        hold: u64,
        reason: String,
    },
    Released {
        hold: u64,
        outcome: String,
    },
    /// The extension came to this: nothing, or the kind of error.
    Extended {
        hold: u64,
        refused: Option<String>,
    },
    /// Staring has begun: the hold was seen held.
    Staring {
        hold: u64,
    },
    /// Staring ended with a "no". Boot times read just before a look.
    Blinked {
        hold: u64,
        /// The last look that found it held.
        held: u64,
        /// How long it was to be held, as that look said: never later than the holder's own deadline.
        until: u64,
        /// The first look that found it not held.
        gone: u64,
    },
    /// One hold of a crowd.
    Held(CrowdHold),
    /// The crowd is done.
    Dispersed,
    Closed,
    /// An order failed.
    Failed {
        text: String,
    },
}

/// One hold of a crowd, for the history and more.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CrowdHold {
    pub(crate) hold: history::Hold,
    /// When the loss was told of, where it was lost.
    pub(crate) told: Option<u64>,
    /// When the release had returned.
    pub(crate) over: u64,
}
