//! What a try sends and what its answer means, without input or output.
//!
//! A lock that nobody holds has no key mostly, because a release deletes it: so a try begins with *unless there is the
//! key, lock it*, which takes one round trip. Where there is a key it is read. If it is free, it was left by a holder
//! that died or by a client of another make; it is locked under the comparison that nobody has changed it since.

use leasehold_core::{Error, ErrorKind, Owner};

use crate::error::unauthorized;
use crate::keys::FLAGS;
use crate::note::{self, Note};
use crate::wire::{Entry, Op, TxnAnswer};

/// What is known of a free lock's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Free {
    /// There is none.
    #[default]
    Absent,
    /// It was last modified at this index.
    At(u64),
}

/// The steps of a try.
pub(crate) fn request<'a>(key: &'a str, free: Free, session: &'a str, note: &[u8]) -> [Op<'a>; 2] {
    let compare = match free {
        Free::Absent => Op::absent(key),
        Free::At(index) => Op::unchanged(key, index),
    };
    [compare, Op::lock(key, session, FLAGS, note)]
}

/// What came of a try.
#[derive(Debug)]
pub(crate) enum Tried {
    /// The key was locked at this index.
    Locked(u64),
    /// It wasn't as it was thought to be: read it.
    Look,
    /// Its last session ended by itself, and it is kept from everybody for a while.
    Delayed,
    /// Our session has ended.
    SessionOver,
    /// It will never succeed.
    Refused(Error),
}

/// What the answer to a try means; none where it can't be one.
pub(crate) fn tried(answer: &TxnAnswer) -> Option<Tried> {
    // The texts hold the key, which ends with a slash and a name of its own: a lock's name can't be taken for a text.
    for error in answer.errors() {
        let what = error.what.as_str();
        if what.starts_with("invalid session \"") {
            return Some(Tried::SessionOver);
        }
        if what.ends_with("\" due to lock delay") {
            return Some(Tried::Delayed);
        }
        if what.starts_with("Permission denied") || what.starts_with("ACL ") {
            return Some(Tried::Refused(unauthorized(what)));
        }
    }
    if !answer.errors().is_empty() {
        return Some(Tried::Look);
    }
    answer.last().map(|entry| Tried::Locked(entry.modify_index))
}

/// How a lock stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// We hold it: an earlier try of ours landed. Its index now, and its token.
    Ours {
        index: u64,
        token: u64,
    },
    /// Our session has it locked for another attempt.
    Taken,
    /// Another session has it locked.
    Busy,
    Free(Free),
}

/// What a look at a lock's key found.
///
/// # Errors
/// `Unsupported` for a key that is no lock.
pub(crate) fn looked(entry: Option<&Entry>, session: &str, owner: Owner) -> Result<Looked, Error> {
    let Some(entry) = entry else {
        return Ok(Looked::Free(Free::Absent));
    };
    check(entry)?;
    Ok(match entry.session() {
        None => Looked::Free(Free::At(entry.modify_index)),
        Some(of) if of == session => match Note::of(entry) {
            Some(note) if note.is_of(owner) => Looked::Ours {
                index: entry.modify_index,
                token: note::token(entry),
            },
            _ => Looked::Taken,
        },
        Some(_) => Looked::Busy,
    })
}

/// Refuses a key that is no lock.
///
/// # Errors
/// `Unsupported`, with what it may be.
pub(crate) fn check(entry: &Entry) -> Result<(), Error> {
    if entry.flags == FLAGS {
        return Ok(());
    }
    let what = if entry.flags == SEMAPHORE_FLAGS {
        "is a semaphore of Consul's".into()
    } else {
        format!("has the flags {}, and a lock's are {FLAGS}", entry.flags)
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "the key \"{}\" {what}; take another name, or delete the key if nobody uses it",
            entry.key
        ),
    ))
}

/// What the key of a semaphore has for flags.
const SEMAPHORE_FLAGS: u64 = 0xe0f6_9a2b_aa41_4de0;

#[cfg(test)]
mod tests {
    use leasehold_core::{Identity, clock};

    use super::*;

    const KEY: &str = "x/.lock";

    fn answer(json: &str) -> TxnAnswer {
        serde_json::from_str(json).unwrap()
    }

    fn refusal(what: &str) -> TxnAnswer {
        let what = serde_json::to_string(what).unwrap();
        answer(&format!(
            r#"{{"Results":null,"Errors":[{{"OpIndex":1,"What":{what}}}]}}"#
        ))
    }

    #[test]
    fn a_grants_token_is_the_index_of_the_lock_step() {
        let locked = answer(
            r#"{"Results":[{"KV":{"LockIndex":1,"Key":"x/.lock","Flags":3304740253564472344,"Value":null,
                "Session":"s","CreateIndex":14,"ModifyIndex":15}}],"Errors":null}"#,
        );
        assert!(matches!(tried(&locked), Some(Tried::Locked(15))));
        assert!(tried(&answer(r#"{"Results":null,"Errors":null}"#)).is_none());
    }

    #[test]
    fn refusals_are_told_apart() {
        for what in [
            r#"key "x/.lock" exists"#,
            r#"failed to lock key "x/.lock", lock is already held"#,
            r#"failed index check for key "x/.lock", current modify index 18 != 3"#,
            // A name can't be taken for a text.
            r#"key "invalid session due to lock delay/.lock" exists"#,
        ] {
            assert!(matches!(tried(&refusal(what)), Some(Tried::Look)), "{what}");
        }
        let over = refusal(r#"invalid session "1111""#);
        assert!(matches!(tried(&over), Some(Tried::SessionOver)));
        let delayed = refusal(r#"failed to lock key "x/.lock" due to lock delay"#);
        assert!(matches!(tried(&delayed), Some(Tried::Delayed)));
        let denied = refusal("Permission denied");
        let Some(Tried::Refused(error)) = tried(&denied) else {
            panic!("{denied:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
    }

    #[test]
    fn a_key_is_free_ours_or_anothers() {
        let owner = Owner::random().unwrap();
        let identity = Identity::of_this_process();
        let note = Note::new(owner, &identity, clock::wall());
        let look = |session: &str, value: &[u8]| {
            let entry = Entry::of(KEY, FLAGS, session, 9, value);
            looked(Some(&entry), "ours", owner).unwrap()
        };
        assert_eq!(
            looked(None, "ours", owner).unwrap(),
            Looked::Free(Free::Absent)
        );
        assert_eq!(look("", &note.text()), Looked::Free(Free::At(9)));
        assert_eq!(
            look("ours", &note.text()),
            Looked::Ours { index: 9, token: 9 }
        );
        assert_eq!(look("theirs", &note.text()), Looked::Busy);
        let other = Note::new(Owner::random().unwrap(), &identity, clock::wall());
        assert_eq!(look("ours", &other.text()), Looked::Taken);
        let moved = note.with_token(7);
        assert_eq!(
            look("ours", &moved.text()),
            Looked::Ours { index: 9, token: 7 }
        );
    }

    #[test]
    fn what_is_no_lock_is_refused() {
        let owner = Owner::random().unwrap();
        for (flags, says) in [
            (SEMAPHORE_FLAGS, "semaphore"),
            (0, "flags 0"),
            (7, "flags 7"),
        ] {
            let entry = Entry::of(KEY, flags, "", 9, b"");
            let error = looked(Some(&entry), "ours", owner).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
