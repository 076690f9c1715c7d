//! What the holders saw, in true time.

use std::collections::HashMap;

use leasehold_core::Owner;
use leasehold_testkit::history::{self, Hold, Verdict};

/// All holds of a run.
#[derive(Debug, Default)]
pub(super) struct Records {
    holds: Vec<Record>,
    /// When an operator took the lock from an owner.
    broken: HashMap<Owner, u64>,
}

#[derive(Debug)]
struct Record {
    name: usize,
    owner: Owner,
    hold: Hold,
    /// Until when the holder believes, should nothing happen to it.
    believes: Option<u64>,
}

impl Records {
    /// A grant has reached its holder; its number here.
    pub(super) fn granted(
        &mut self,
        name: usize,
        owner: Owner,
        token: u64,
        called: u64,
        now: u64,
    ) -> usize {
        self.holds.push(Record {
            name,
            owner,
            hold: Hold {
                token,
                called,
                returned: now,
                until: now,
            },
            believes: None,
        });
        self.holds.len() - 1
    }

    /// Something happens to the holder: until now it went as foreseen, from now on it believes until
    /// `believes`, or not at all.
    pub(super) fn believes(&mut self, record: usize, now: u64, believes: Option<u64>) {
        let record = &mut self.holds[record];
        if let Some(until) = record.believes {
            record.hold.until = record.hold.until.max(until.min(now));
        }
        record.believes = believes;
    }

    /// An operator took the lock from this owner: from here on it is his responsibility.
    pub(super) fn broken(&mut self, owner: Owner, now: u64) {
        self.broken.entry(owner).or_insert(now);
    }

    pub(super) fn is_broken(&self, owner: Owner) -> bool {
        self.broken.contains_key(&owner)
    }

    pub(super) fn count(&self) -> usize {
        self.holds.len()
    }

    /// Checks the holds of each name.
    pub(super) fn check(&mut self, names: usize, now: u64) -> Result<(), String> {
        for record in 0..self.holds.len() {
            self.believes(record, now, None);
        }
        for name in 0..names {
            let holds = self.holds.iter().filter(|record| record.name == name);
            let holds: Vec<Hold> = holds
                .map(|record| {
                    let mut hold = record.hold;
                    if let Some(broken) = self.broken.get(&record.owner) {
                        hold.until = hold.until.min(*broken).max(hold.returned);
                    }
                    hold
                })
                .collect();
            history::check(&holds, Verdict::Exclusive)
                .map_err(|violation| format!("lock {name}: {violation}"))?;
        }
        Ok(())
    }
}
