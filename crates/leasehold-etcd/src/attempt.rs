//! What a try sends and what its answer means, without input or output.
//!
//! The transaction is the one of etcd's own clients: unless our key is there, put it, and read who is first. Two
//! comparisons go before it: that the canary is as we know it, and, so that a lock nobody holds is taken at once and
//! a try of a held one writes nothing, that there is no key under the lock at all.

use leasehold_core::{Name, Owner};

use crate::keys::{self, FIRST};
use crate::note::Note;
use crate::session::Lease;
use crate::wire::{Compare, KeyValue, Op, RangeResponse, RequestOp, TxnRequest, TxnResponse};

/// A try as it goes out.
#[derive(Debug)]
pub(crate) struct Try<'a> {
    pub(crate) name: &'a Name,
    pub(crate) owner: Owner,
    pub(crate) lease: &'a Lease,
    /// The value for a lock that is free, and for a place behind others.
    pub(crate) notes: [Vec<u8>; 2],
    /// Whether to take a place behind others.
    pub(crate) joins: bool,
}

/// What came of a try.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Our place was made at this revision, and is the first.
    First(i64),
    /// Our place was made at this revision, behind others; the first of them.
    Behind(i64, Box<KeyValue>),
    /// We have no place; the first has.
    Busy(Box<KeyValue>),
    /// We have no place, and among the keys read there is none of the lock itself.
    Unclear,
    /// Our place was made at this revision, and whether it is the first takes reading all keys.
    MadeUnclear(i64),
    /// The canary was written anew at this revision: nothing was done.
    Voided(i64),
    /// The lease has ended.
    SessionOver,
    /// Our key is another attempt's: a hold that is kept after its release, or hangs on another lease by now.
    Taken,
    /// Our place is not there any more.
    Gone,
}

impl Try<'_> {
    pub(crate) fn request(&self) -> TxnRequest {
        let key = keys::place(self.name, self.lease.id);
        let (from, to) = keys::under(self.name);
        let ours = [
            Compare::written(&self.lease.canary, self.lease.written),
            Compare::created(&key, 0),
        ];
        let look = || {
            vec![
                Op::get(&self.lease.canary),
                Op::get(&key),
                keys::oldest_op(self.name, FIRST),
            ]
        };
        let [free, behind] = &self.notes;
        let put = |note: &[u8]| Op::put(&key, note.to_vec(), self.lease.id);
        let otherwise = if self.joins {
            let join = TxnRequest {
                compare: ours.to_vec(),
                success: vec![
                    put(behind),
                    Op::get(&key),
                    keys::oldest_op(self.name, FIRST),
                ],
                failure: look(),
            };
            vec![RequestOp::from(Op::Txn(join))]
        } else {
            look()
        };
        let [written, absent] = ours;
        TxnRequest {
            compare: vec![written, absent, Compare::empty(&from, &to)],
            success: vec![put(free), Op::get(&key)],
            failure: otherwise,
        }
    }

    /// What the answer means; none where it can't be one.
    pub(crate) fn outcome(&self, answer: &TxnResponse) -> Option<Outcome> {
        if answer.succeeded {
            return Some(Outcome::First(
                answer.range(1)?.kvs.first()?.create_revision,
            ));
        }
        let inner = if self.joins {
            answer.nested(0)?
        } else {
            answer
        };
        if self.joins && inner.succeeded {
            let made = inner.range(1)?.kvs.first()?.create_revision;
            return Some(place(self.name, made, inner.range(2)?));
        }
        let Some(canary) = inner.range(0)?.kvs.first() else {
            return Some(Outcome::SessionOver);
        };
        let oldest = inner.range(2)?;
        if let Some(own) = inner.range(1)?.kvs.first() {
            // An earlier try of ours landed, or an earlier attempt's hold still has the key.
            return Some(match Note::of(own) {
                Some(note) if note.is_of(self.owner) => {
                    place(self.name, own.create_revision, oldest)
                }
                _ => Outcome::Taken,
            });
        }
        if canary.mod_revision != self.lease.written {
            return Some(Outcome::Voided(canary.mod_revision));
        }
        Some(match first(self.name, oldest) {
            Some(first) => Outcome::Busy(Box::new(first.clone())),
            None => Outcome::Unclear,
        })
    }
}

/// Reads where a place stands: its key and the oldest ones, all where `limit` is zero. A quorum read.
pub(crate) fn look(name: &Name, key: &[u8], limit: i64) -> TxnRequest {
    TxnRequest {
        success: vec![Op::get(key), keys::oldest_op(name, limit)],
        ..TxnRequest::default()
    }
}

/// What [`look`] found of the place made at `made`.
pub(crate) fn looked(name: &Name, made: i64, answer: &TxnResponse) -> Option<Outcome> {
    let own = answer.range(0)?.kvs.first();
    if own.is_none_or(|own| own.create_revision != made) {
        return Some(Outcome::Gone);
    }
    Some(place(name, made, answer.range(1)?))
}

fn place(name: &Name, made: i64, oldest: &RangeResponse) -> Outcome {
    match first(name, oldest) {
        Some(first) if first.create_revision == made => Outcome::First(made),
        Some(first) => Outcome::Behind(made, Box::new(first.clone())),
        None => Outcome::MadeUnclear(made),
    }
}

/// The first place among the oldest keys.
pub(crate) fn first<'a>(name: &Name, oldest: &'a RangeResponse) -> Option<&'a KeyValue> {
    oldest.kvs.iter().find(|kv| keys::is_place(name, kv))
}

#[cfg(test)]
mod tests {
    use leasehold_core::Identity;

    use super::*;
    use crate::wire::{OpAnswer, ResponseOp};

    fn name() -> Name {
        Name::new("a").unwrap()
    }

    fn lease() -> Lease {
        Lease {
            id: 0x1f,
            canary: keys::canary(0x1f),
            written: 5,
        }
    }

    fn key(key: &str, made: i64, value: Vec<u8>) -> KeyValue {
        KeyValue {
            key: key.into(),
            create_revision: made,
            mod_revision: made,
            value,
            lease: 1,
        }
    }

    fn answer(succeeded: bool, ranges: Vec<Vec<KeyValue>>) -> TxnResponse {
        let responses = ranges.into_iter().map(|kvs| ResponseOp {
            response: Some(OpAnswer::Range(RangeResponse {
                kvs,
                ..RangeResponse::default()
            })),
        });
        TxnResponse {
            succeeded,
            responses: responses.collect(),
            ..TxnResponse::default()
        }
    }

    fn of(joins: bool, owner: Owner, answer: &TxnResponse) -> Option<Outcome> {
        let lease = lease();
        let attempt = Try {
            name: &name(),
            owner,
            lease: &lease,
            notes: Default::default(),
            joins,
        };
        attempt.outcome(answer)
    }

    fn refused(canary: &[i64], own: Vec<KeyValue>, oldest: Vec<KeyValue>) -> TxnResponse {
        let canary = canary.iter().map(|at| key("c", *at, Vec::new()));
        answer(false, vec![canary.collect(), own, oldest])
    }

    #[test]
    fn a_busy_try_takes_no_place() {
        let owner = Owner::random().unwrap();
        let holder = key("a/7", 6, Vec::new());
        let busy = refused(&[5], vec![], vec![holder.clone()]);
        assert_eq!(of(false, owner, &busy), Some(Outcome::Busy(holder.into())));
    }

    #[test]
    fn a_lock_further_down_doesnt_make_it_busy() {
        let owner = Owner::random().unwrap();
        let child = key("a/b/7", 6, Vec::new());
        let unclear = refused(&[5], vec![], vec![child]);
        assert_eq!(of(false, owner, &unclear), Some(Outcome::Unclear));
    }

    #[test]
    fn a_voided_try_did_nothing_and_an_ended_lease_is_seen() {
        let owner = Owner::random().unwrap();
        let voided = refused(&[9], vec![], vec![]);
        assert_eq!(of(false, owner, &voided), Some(Outcome::Voided(9)));
        let over = refused(&[], vec![], vec![]);
        assert_eq!(of(false, owner, &over), Some(Outcome::SessionOver));
    }

    #[test]
    fn an_earlier_try_that_landed_is_found_and_never_doubled() {
        let owner = Owner::random().unwrap();
        let note = Note::text(owner, &Identity::of_this_process(), None);
        let own = key("a/1f", 8, note);
        let holder = key("a/7", 6, Vec::new());
        let landed = refused(&[5], vec![own.clone()], vec![holder.clone(), own.clone()]);
        let behind = Some(Outcome::Behind(8, holder.into()));
        assert_eq!(of(false, owner, &landed), behind);
        let alone = refused(&[5], vec![own.clone()], vec![own]);
        assert_eq!(of(false, owner, &alone), Some(Outcome::First(8)));
        // Another attempt's hold, kept after its release, is nobody's way in.
        let taken = of(false, Owner::random().unwrap(), &alone);
        assert_eq!(taken, Some(Outcome::Taken));
    }

    #[test]
    fn the_token_is_the_revision_of_the_own_key_and_never_the_answers() {
        let owner = Owner::random().unwrap();
        let mut granted = answer(true, vec![vec![], vec![key("a/1f", 8, Vec::new())]]);
        granted.header = Some(crate::wire::Header {
            revision: 99,
            ..Default::default()
        });
        assert_eq!(of(true, owner, &granted), Some(Outcome::First(8)));
    }

    #[test]
    fn a_place_that_went_while_waiting_is_no_grant() {
        let own = key("a/1f", 8, Vec::new());
        let gone = answer(true, vec![vec![], vec![]]);
        assert_eq!(looked(&name(), 8, &gone), Some(Outcome::Gone));
        // The same key made anew is another place.
        let again = answer(
            true,
            vec![vec![key("a/1f", 12, Vec::new())], vec![own.clone()]],
        );
        assert_eq!(looked(&name(), 8, &again), Some(Outcome::Gone));
        let first = answer(true, vec![vec![own.clone()], vec![own]]);
        assert_eq!(looked(&name(), 8, &first), Some(Outcome::First(8)));
    }
}
