use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use crate::history::{self, Hold, Verdict};

/// All holds of a run, as the holders saw them, in true time. `O` says whose one is.
#[derive(Debug)]
pub struct Records<O> {
    holds: Vec<Record<O>>,
    /// When an operator took the lock from an owner.
    broken: HashMap<O, u64>,
}

#[derive(Debug)]
struct Record<O> {
    name: usize,
    owner: O,
    hold: Hold,
    /// Until when the holder believes, should nothing happen to it.
    believes: Option<u64>,
}

impl<O> Default for Records<O> {
    fn default() -> Self {
        Self {
            holds: Vec::new(),
            broken: HashMap::new(),
        }
    }
}

impl<O: Eq + Hash> Records<O> {
    /// A grant has reached its holder; its number here.
    pub fn granted(
        &mut self,
        name: usize,
        owner: impl Into<O>,
        token: u64,
        called: u64,
        now: u64,
    ) -> usize {
        self.holds.push(Record {
            name,
            owner: owner.into(),
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
    pub fn believes(&mut self, record: usize, now: u64, believes: Option<u64>) {
        let record = &mut self.holds[record];
        if let Some(until) = record.believes {
            record.hold.until = record.hold.until.max(until.min(now));
        }
        record.believes = believes;
    }

    /// An operator took the lock from this owner: from here on it is his responsibility.
    pub fn broken(&mut self, owner: O, now: u64) {
        self.broken.entry(owner).or_insert(now);
    }

    /// Whether that has happened to this owner.
    #[must_use]
    pub fn is_broken<Q: Eq + Hash + ?Sized>(&self, owner: &Q) -> bool
    where
        O: Borrow<Q>,
    {
        self.broken.contains_key(owner)
    }

    /// How many holds there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.holds.len()
    }

    /// Checks the holds of each name.
    ///
    /// # Errors
    /// With the two that break a rule.
    pub fn check(&mut self, names: usize, now: u64) -> Result<(), String> {
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
