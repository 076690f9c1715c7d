//! From a lock's name to its keys.
//!
//! The lock itself is a plain string under its name, which is what other clients lock by. Its siblings (counter,
//! queue, waiters, tombstones) carry the lock's own hash tag, so that all are in one Cluster slot
//! (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>, "Hash tags").

use leasehold_core::{Name, Owner};

use crate::slot;

/// The keys of one lock, in the order the scripts take them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) lock: String,
    pub(crate) counter: String,
    pub(crate) queue: String,
    pub(crate) waiters: String,
}

/// What every sibling key and channel begins with.
pub(crate) const FAMILY: &str = "leasehold:";

/// Whose siblings they are: they differ in what they hold, and one server may have both.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Family {
    /// A lock that this server alone decides on.
    Single,
    /// A node's part of a lock.
    Redlock,
}

impl Family {
    fn counter(self) -> &'static str {
        match self {
            Self::Single => "leasehold:f:",
            Self::Redlock => "leasehold:redlock:f:",
        }
    }

    fn queue(self) -> &'static str {
        match self {
            Self::Single => "leasehold:q:",
            Self::Redlock => "leasehold:redlock:q:",
        }
    }

    fn waiters(self) -> &'static str {
        match self {
            Self::Single => "leasehold:w:",
            Self::Redlock => "leasehold:redlock:w:",
        }
    }

    /// A pattern that finds the counter of every lock whose name begins with this, and few others: the name is what
    /// stands in the braces or right behind them.
    pub(crate) fn counters(self, prefix: &str) -> String {
        let mut pattern = format!("{}{{*", self.counter());
        for letter in prefix.chars() {
            if "*?[]\\".contains(letter) {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern.push('*');
        pattern
    }

    /// The lock whose counter this is.
    pub(crate) fn lock_of(self, counter: &str) -> Option<&str> {
        let rest = counter.strip_prefix(self.counter())?.strip_prefix('{')?;
        let (tag, after) = rest.split_once('}')?;
        match after.strip_prefix(':') {
            Some(lock) => Some(lock),
            None => after.is_empty().then_some(tag),
        }
    }
}

impl Keys {
    pub(crate) fn of(name: &Name) -> Self {
        Self::in_family(Family::Single, name)
    }

    pub(crate) fn in_family(family: Family, name: &Name) -> Self {
        let tagged = tagged(name.as_str());
        Self {
            lock: name.as_str().to_owned(),
            counter: [family.counter(), &tagged].concat(),
            queue: [family.queue(), &tagged].concat(),
            waiters: [family.waiters(), &tagged].concat(),
        }
    }

    /// The lock's counter alone.
    pub(crate) fn counter(family: Family, name: &Name) -> String {
        [family.counter(), &tagged(name.as_str())].concat()
    }

    /// The key that says that this owner has been released.
    pub(crate) fn tombstone(name: &Name, owner: Owner) -> String {
        [FAMILY, "x:", &tagged(name.as_str()), ":", &owner.to_hex()].concat()
    }

    /// The key that holds the owner whose hold was broken last.
    pub(crate) fn broken(name: &Name) -> String {
        [FAMILY, "b:", &tagged(name.as_str())].concat()
    }
}

/// The name behind a hash tag of its slot: `{name}`; `{tag}:name` where only a part of the name is hashed; and the
/// slot's number-tag in its place where the name can't stand in braces, as `a}b` can't.
fn tagged(name: &str) -> String {
    if !name.contains('}') {
        return ["{", name, "}"].concat();
    }
    match slot::own_tag(name) {
        Some(tag) => ["{", tag, "}:", name].concat(),
        None => format!("{{{}}}:{name}", slot::tag(slot::of(name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_names_its_lock_whatever_braces_the_name_has() {
        for name in [
            "a",
            "jobs/report",
            "a:b",
            "{a}",
            "x{a}y",
            "a}b",
            "{}x",
            "{a}:b",
            "a}:b{c}",
        ] {
            for family in [Family::Single, Family::Redlock] {
                let keys = Keys::in_family(family, &Name::new(name).unwrap());
                assert_eq!(family.lock_of(&keys.counter), Some(name), "{keys:?}");
            }
        }
    }

    #[test]
    fn all_keys_of_a_lock_are_in_one_slot_whatever_braces_it_has() {
        let parts = ["a", "{", "}", "{}", "{b}", ":", "/c"];
        let mut names = vec![String::new()];
        for _ in 0..4 {
            let longer = |name: &String| parts.map(|part| format!("{name}{part}"));
            names = names.iter().flat_map(longer).collect();
            for name in &names {
                let Ok(name) = Name::new(name) else { continue };
                let keys = Keys::of(&name);
                let owner = Owner::random().unwrap();
                let siblings = [
                    keys.counter.clone(),
                    keys.queue.clone(),
                    keys.waiters.clone(),
                    Keys::tombstone(&name, owner),
                    Keys::broken(&name),
                ];
                for sibling in siblings {
                    assert_eq!(slot::of(&sibling), slot::of(&keys.lock), "{sibling}");
                }
                let lock = Family::Single.lock_of(&keys.counter);
                assert_eq!(lock, Some(name.as_str()), "{keys:?}");
            }
        }
    }

    #[test]
    fn a_pattern_for_a_prefix_is_for_the_server_and_has_no_patterns_of_the_prefix() {
        let pattern = Family::Single.counters("a*[b]?\\");
        assert_eq!(pattern, "leasehold:f:{*a\\*\\[b\\]\\?\\\\*");
        assert_eq!(
            Family::Redlock.counters("jobs/"),
            "leasehold:redlock:f:{*jobs/*"
        );
    }

    #[test]
    fn different_locks_have_different_siblings() {
        let names = ["a", "{a}", "{a}:a", "a:a", "{a}a", "a}", "{}a}"];
        let counters: std::collections::HashSet<String> = names
            .iter()
            .map(|name| Keys::of(&Name::new(name).unwrap()).counter)
            .collect();
        assert_eq!(counters.len(), names.len());
    }
}
