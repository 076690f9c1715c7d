//! Which keys a lock has, and which of those under its name are places in its queue.

use leasehold_core::{Error, ErrorKind, Name, Result};

use crate::wire::{KeyValue, Op, RangeRequest, RequestOp, SortOrder, SortTarget};

/// leasehold's own keys begin with this, and no lock's name does.
pub(crate) const FAMILY: &str = "leasehold:";

/// How many of a queue's first places are read; those that belong to locks further down don't count.
pub(crate) const FIRST: i64 = 8;

/// The place in the queue of `name` of who has this lease.
pub(crate) fn place(name: &Name, lease: i64) -> Vec<u8> {
    format!("{name}/{lease:x}").into_bytes()
}

/// The key that shows that a lease is there.
pub(crate) fn canary(lease: i64) -> Vec<u8> {
    format!("{FAMILY}session/{lease:x}").into_bytes()
}

/// From the first key under `name` to the one behind the last.
pub(crate) fn under(name: &Name) -> (Vec<u8>, Vec<u8>) {
    // '0' comes right after '/'.
    (
        format!("{name}/").into_bytes(),
        format!("{name}0").into_bytes(),
    )
}

/// Reads what is under `name`, the oldest first; all of it where `limit` is zero.
pub(crate) fn oldest(name: &Name, limit: i64) -> RangeRequest {
    let (key, range_end) = under(name);
    RangeRequest {
        key,
        range_end,
        limit,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        keys_only: false,
    }
}

pub(crate) fn oldest_op(name: &Name, limit: i64) -> RequestOp {
    Op::Range(oldest(name, limit)).into()
}

/// Whether this key under `name` is a place in its own queue, and not in that of a lock further down.
pub(crate) fn is_place(name: &Name, kv: &KeyValue) -> bool {
    kv.lease != 0
        && kv
            .key
            .strip_prefix(name.as_str().as_bytes())
            .and_then(|rest| rest.strip_prefix(b"/"))
            .is_some_and(is_lease)
}

/// The lock that this key is a place of.
pub(crate) fn lock_of(kv: &KeyValue) -> Option<Name> {
    let key = std::str::from_utf8(&kv.key).ok()?;
    let (name, lease) = key.rsplit_once('/')?;
    let counts = kv.lease != 0 && is_lease(lease.as_bytes()) && !name.starts_with(FAMILY);
    counts.then(|| Name::new(name).ok()).flatten()
}

/// A lease as every client writes it: in lower-case hexadecimal digits.
fn is_lease(text: &[u8]) -> bool {
    (1..=16).contains(&text.len())
        && text
            .iter()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
}

/// Refuses the names of leasehold's own keys.
pub(crate) fn not_of_the_family(name: &Name) -> Result<()> {
    if !name.as_str().starts_with(FAMILY) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Invalid,
        format!("names that begin with \"{FAMILY}\" are leasehold's own keys"),
    ))
}

/// The key behind all that begin with `prefix`; nothing where there is none.
pub(crate) fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys from here on.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str, lease: i64) -> KeyValue {
        KeyValue {
            key: key.into(),
            lease,
            ..KeyValue::default()
        }
    }

    #[test]
    fn only_places_of_the_lock_itself_count() {
        let name = Name::new("a").unwrap();
        assert!(is_place(&name, &key("a/694d8c", 1)));
        for (other, lease) in [
            ("a/b/694d8c", 1),
            ("a/694D8C", 1),
            ("a/read/17", 1),
            ("a/", 1),
            ("a", 1),
            ("ab/694d8c", 1),
            ("a/12345678901234567", 1),
            // Nobody's lease: no client's lock.
            ("a/694d8c", 0),
        ] {
            assert!(!is_place(&name, &key(other, lease)), "{other}");
        }
    }

    #[test]
    fn a_place_tells_its_lock() {
        let lock = |text: &str, lease| lock_of(&key(text, lease)).map(|name| name.to_string());
        assert_eq!(lock("a/b/1f", 1).as_deref(), Some("a/b"));
        assert_eq!(lock("leasehold:session/1f", 1), None);
        assert_eq!(lock("a/b/1f", 0), None);
        assert_eq!(lock("1f", 1), None);
        assert_eq!(lock("a//1f", 1), None);
    }

    #[test]
    fn a_range_covers_a_prefix_and_no_more() {
        assert_eq!(behind(b"a"), b"b");
        assert_eq!(behind(b"a\xff"), b"b");
        assert_eq!(behind(b""), [0]);
        let (from, to) = under(&Name::new("a").unwrap());
        assert!(from.as_slice() <= b"a/\xff".as_slice() && b"a/\xff".as_slice() < to.as_slice());
        assert!(b"a.".as_slice() < from.as_slice());
    }
}
