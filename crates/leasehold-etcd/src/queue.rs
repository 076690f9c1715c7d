//! The queue of one lock as this process sees it, without input or output: who is to be told what.
//!
//! It is read once and kept up by the events of a watch that was open before. A waiter is told when all before it are
//! gone, and when its own place is.

use std::collections::{BTreeSet, HashMap, HashSet};

use leasehold_core::Name;

use crate::keys;
use crate::wire::{Event, EventType, KeyValue};

#[derive(Debug)]
pub(crate) struct Queue {
    name: Name,
    /// Up to which revision it is known; none until it was read, and after a gap.
    known: Option<i64>,
    /// At which revision it was read. Events up to it are in what was read; after it, one revision may have several.
    read_at: i64,
    /// What came before it was read.
    early: Vec<Event>,
    /// The places by the revision they were made at, which is their order.
    order: BTreeSet<i64>,
    keys: HashMap<Vec<u8>, i64>,
    /// Those of this process.
    ours: HashSet<i64>,
    /// The one that was told last that it is the first.
    told: Option<i64>,
}

impl Queue {
    pub(crate) fn new(name: Name) -> Self {
        Self {
            name,
            known: None,
            read_at: 0,
            early: Vec::new(),
            order: BTreeSet::new(),
            keys: HashMap::new(),
            ours: HashSet::new(),
            told: None,
        }
    }

    /// Events may have been missed: it is unknown until it is read again.
    pub(crate) fn lose(&mut self) {
        self.known = None;
        self.early.clear();
        self.order.clear();
        self.keys.clear();
        self.told = None;
    }

    /// It was read at this revision. Answers who is to be told.
    pub(crate) fn read(&mut self, revision: i64, kvs: &[KeyValue]) -> Vec<i64> {
        self.known = Some(revision);
        self.read_at = revision;
        for kv in kvs {
            self.add(kv);
        }
        let gone = self
            .ours
            .iter()
            .filter(|place| **place <= revision && !self.order.contains(place));
        let mut tell: Vec<i64> = gone.copied().collect();
        for event in std::mem::take(&mut self.early) {
            tell.extend(self.apply(&event));
        }
        tell.extend(self.first());
        tell
    }

    /// An event of the watch. Answers who is to be told.
    pub(crate) fn event(&mut self, event: Event) -> Vec<i64> {
        if self.known.is_none() {
            self.early.push(event);
            return Vec::new();
        }
        let mut tell: Vec<i64> = self.apply(&event).into_iter().collect();
        tell.extend(self.first());
        tell
    }

    /// One of this process has this place. Answers whether it is to be told at once.
    pub(crate) fn join(&mut self, place: i64) -> bool {
        self.ours.insert(place);
        let gone = self.known.is_some_and(|known| known >= place) && !self.order.contains(&place);
        gone || self.first() == Some(place)
    }

    /// It doesn't want to be told any more.
    pub(crate) fn leave(&mut self, place: i64) {
        self.ours.remove(&place);
    }

    /// Whether nobody of this process wants to be told.
    pub(crate) fn is_unused(&self) -> bool {
        self.ours.is_empty()
    }

    fn add(&mut self, kv: &KeyValue) {
        if keys::is_place(&self.name, kv) {
            self.order.insert(kv.create_revision);
            self.keys.insert(kv.key.clone(), kv.create_revision);
        }
    }

    /// Takes an event in; the place of ours that it ended.
    fn apply(&mut self, event: &Event) -> Option<i64> {
        let kv = event.kv.as_ref()?;
        if kv.mod_revision <= self.read_at {
            return None;
        }
        self.known = Some(kv.mod_revision);
        if event.kind != i32::from(EventType::Delete) {
            self.add(kv);
            return None;
        }
        let place = self.keys.remove(&kv.key)?;
        self.order.remove(&place);
        self.ours.contains(&place).then_some(place)
    }

    /// The first, where it is one of ours and hasn't been told.
    fn first(&mut self) -> Option<i64> {
        self.known?;
        let first = self.order.first().copied()?;
        if self.told == Some(first) || !self.ours.contains(&first) {
            return None;
        }
        self.told = Some(first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: [i64; 0] = [];

    fn queue() -> Queue {
        Queue::new(Name::new("a").unwrap())
    }

    fn place(at: i64) -> KeyValue {
        KeyValue {
            key: format!("a/{at:x}").into_bytes(),
            create_revision: at,
            mod_revision: at,
            lease: at,
            ..KeyValue::default()
        }
    }

    fn put(kv: KeyValue) -> Event {
        Event {
            kind: EventType::Put.into(),
            kv: Some(kv),
        }
    }

    /// Deletes the place made at `at`, at revision `revision`. A deletion doesn't say when the key was made.
    fn delete(at: i64, revision: i64) -> Event {
        Event {
            kind: EventType::Delete.into(),
            kv: Some(KeyValue {
                key: place(at).key,
                mod_revision: revision,
                ..KeyValue::default()
            }),
        }
    }

    #[test]
    fn the_next_is_told_when_its_predecessor_goes_and_nobody_else() {
        let mut queue = queue();
        assert_eq!(queue.read(20, &[place(10), place(11), place(12)]), NOBODY);
        assert!(!queue.join(11));
        assert!(!queue.join(12));
        assert_eq!(queue.event(delete(10, 21)), [11]);
        // A newcomer behind tells the first nothing new.
        assert_eq!(queue.event(put(place(22))), NOBODY);
        assert_eq!(queue.event(delete(11, 23)), [11, 12]);
    }

    #[test]
    fn a_predecessor_in_the_middle_makes_nobody_first() {
        let mut queue = queue();
        queue.read(20, &[place(10), place(11), place(12)]);
        queue.join(12);
        assert_eq!(queue.event(delete(11, 21)), NOBODY);
        assert_eq!(queue.event(delete(10, 22)), [12]);
    }

    #[test]
    fn a_release_between_read_and_join_isnt_missed() {
        let mut queue = queue();
        queue.read(20, &[place(10), place(11)]);
        assert_eq!(queue.event(delete(10, 21)), NOBODY);
        assert!(queue.join(11));
    }

    #[test]
    fn a_release_between_watch_and_read_isnt_missed() {
        let mut queue = queue();
        queue.join(11);
        // Before the read was answered, and known to it or not.
        assert_eq!(queue.event(delete(10, 19)), NOBODY);
        assert_eq!(queue.event(delete(10, 21)), NOBODY);
        assert_eq!(queue.read(20, &[place(10), place(11)]), [11]);
    }

    #[test]
    fn an_own_place_that_went_is_told() {
        let mut queue = queue();
        queue.read(20, &[place(10), place(11)]);
        queue.join(11);
        assert_eq!(queue.event(delete(11, 21)), [11]);
        // Also where it went in a gap, or before anybody looked.
        queue.lose();
        assert_eq!(queue.read(30, &[place(10)]), [11]);
        queue.join(12);
        queue.leave(11);
        assert!(queue.join(15));
    }

    #[test]
    fn a_place_made_after_the_read_isnt_gone() {
        let mut queue = queue();
        queue.read(20, &[place(10)]);
        assert!(!queue.join(25));
        assert_eq!(queue.event(put(place(25))), NOBODY);
        assert_eq!(queue.event(delete(10, 26)), [25]);
    }

    #[test]
    fn places_that_went_in_one_revision_are_all_gone() {
        let mut queue = queue();
        queue.read(20, &[place(10), place(11), place(12)]);
        queue.join(11);
        queue.join(12);
        // As when an operator deletes the prefix.
        assert_eq!(queue.event(delete(10, 21)), [11]);
        assert_eq!(queue.event(delete(11, 21)), [11, 12]);
        assert_eq!(queue.event(delete(12, 21)), [12]);
    }

    #[test]
    fn a_gap_is_made_good_by_reading() {
        let mut queue = queue();
        queue.read(20, &[place(10), place(11)]);
        queue.join(11);
        queue.lose();
        // The deletion of 10 fell into the gap.
        assert_eq!(queue.read(30, &[place(11)]), [11]);
    }

    #[test]
    fn locks_further_down_and_foreign_keys_dont_count() {
        let mut queue = queue();
        let child = KeyValue {
            key: b"a/b/5".to_vec(),
            ..place(5)
        };
        queue.read(20, &[child, place(11)]);
        assert!(queue.join(11));
    }

    #[test]
    fn a_rewritten_place_keeps_its_order() {
        let mut queue = queue();
        queue.read(20, &[place(10), place(11)]);
        queue.join(11);
        let rewritten = KeyValue {
            mod_revision: 21,
            ..place(10)
        };
        assert_eq!(queue.event(put(rewritten)), NOBODY);
        assert_eq!(queue.event(delete(10, 22)), [11]);
    }
}
