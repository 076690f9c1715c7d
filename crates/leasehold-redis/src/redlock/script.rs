//! The scripts that a node runs, and how their answers and messages are read.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::backend::Release;
use leasehold_core::{Error, ErrorKind, Holder, Name, Owner, Result, Token};
use redis::Value;

use super::exchange::{Answer, Request};
use super::hold::{Left, Waiter};
use super::look::View;
use super::members::{Entry, Record};
use super::queue::{Held, Seen, Who};
use crate::keys::{Family, Keys};
use crate::reply::{self, Fields};
use crate::script::script;

script!(
    TAKE,
    "One request for the lock, or for a place alone.",
    "redlock_common.lua",
    "redlock_take.lua"
);
script!(WRITE, "Writes a token back.", "redlock_write.lua");
script!(
    LEAVE,
    "Ends an attempt or a hold.",
    "redlock_common.lua",
    "redlock_leave.lua"
);
script!(
    BREAK,
    "Takes the lock from its owner.",
    "redlock_common.lua",
    "redlock_break.lua"
);
script!(LOOK, "Who holds and who waits.", "redlock_look.lua");
script!(ENTER, "Merges into the node's record.", "redlock_enter.lua");

/// The key of a node's record.
pub(crate) fn record_key() -> &'static str {
    "leasehold:redlock"
}

/// What [`TAKE`] and [`LEAVE`] take.
pub(crate) fn keys(name: &Name, owner: Owner) -> [String; 6] {
    let [lock, counter, queue, waiters] = look_keys(name);
    let tombstone = Keys::tombstone(name, owner);
    [
        lock,
        counter,
        queue,
        waiters,
        tombstone,
        record_key().to_owned(),
    ]
}

/// What [`BREAK`] takes.
pub(crate) fn break_keys(name: &Name) -> [String; 5] {
    let [lock, counter, queue, waiters] = look_keys(name);
    [lock, counter, queue, waiters, Keys::broken(name)]
}

/// What [`LOOK`] takes.
pub(crate) fn look_keys(name: &Name) -> [String; 4] {
    let Keys {
        lock,
        counter,
        queue,
        waiters,
    } = Keys::in_family(Family::Redlock, name);
    [lock, counter, queue, waiters]
}

/// How [`TAKE`] names a request; `None` for one that is not for it.
pub(crate) fn mode(request: Request) -> Option<(u64, &'static str)> {
    match request {
        Request::Take {
            number,
            turn: false,
        } => Some((number, "take")),
        Request::Take { number, turn: true } => Some((number, "turn")),
        Request::Stay { number } => Some((number, "stay")),
        Request::Write { .. } => None,
    }
}

/// The arguments of [`ENTER`] for a node that reported `record`.
pub(crate) fn entry(entry: &Entry, record: Option<&Record>, durable: bool) -> Vec<String> {
    let version = record.map_or(0, |record| record.version);
    let mut args = vec![
        version.to_string(),
        u8::from(durable).to_string(),
        entry.longest.as_millis().to_string(),
        entry.floor.to_string(),
        entry.runs.len().to_string(),
    ];
    let runs = entry.runs.iter().chain(&entry.earlier);
    args.extend(runs.flat_map(|(name, run)| [name.clone(), run.clone()]));
    args
}

/// Reads a node's record as `HGETALL` answers it; `None` where there is none, or half of one.
pub(crate) fn record(fields: &BTreeMap<String, String>) -> Option<Record> {
    let number = |name: &str| fields.get(name)?.parse().ok();
    let runs = fields
        .iter()
        .filter_map(|(field, run)| Some((field.strip_prefix("run:")?.to_owned(), run.clone())));
    Some(Record {
        version: number("version")?,
        durable: number("durable")? == 1,
        longest: Duration::from_millis(number("longest")?),
        floor: number("floor").unwrap_or(0),
        born: number("born"),
        runs: runs.collect(),
    })
}

/// Reads what [`TAKE`] answered; with the holder as it is shown to people, where it is busy.
pub(crate) fn taken(answer: Value) -> Result<(Answer, Option<Holder>)> {
    let mut fields = Fields::of(answer)?;
    match fields.text()?.as_str() {
        "granted" => {
            let counter = number(&fields.text()?)?;
            let micros = number(&fields.text()?)?;
            Ok((Answer::Granted { counter, micros }, None))
        }
        "busy" => {
            let place = u32::try_from(fields.int()?).unwrap_or(u32::MAX);
            let value = fields.text()?;
            let ours = fields.int()? == 1;
            let holder = fields.holder()?;
            let held = (!value.is_empty()).then(|| Held {
                who: who(&value),
                ours,
                expires_in: holder.expires_in,
            });
            let answer = Answer::Busy(Seen {
                holder: held,
                place,
            });
            Ok((answer, held.map(|_| holder)))
        }
        "void" => Ok((Answer::Void, None)),
        "type" => Err(reply::not_a_lock(&fields.text()?)),
        other => Err(reply::unexpected(&other)),
    }
}

/// Reads what [`WRITE`] answered.
pub(crate) fn written(answer: &Value) -> Result<Answer> {
    match answer {
        Value::Int(1) => Ok(Answer::Written),
        Value::Int(0) => Ok(Answer::Refused),
        other => Err(reply::unexpected(other)),
    }
}

/// Reads what [`LEAVE`] answered.
pub(crate) fn left(answer: Value) -> Result<Left> {
    let mut fields = Fields::of(answer)?;
    let found = match fields.text()?.as_str() {
        "freed" => Release::Freed,
        "expired" => Release::Expired,
        "another" => Release::Another,
        other => return Err(reply::unexpected(&other)),
    };
    let owner = fields.text()?;
    let channel = fields.text()?;
    let told = (!owner.is_empty()).then_some(Waiter { owner, channel });
    Ok(Left { found, told })
}

/// Reads what [`LOOK`] answered.
pub(crate) fn view(answer: Value) -> Result<View> {
    let mut fields = Fields::of(answer)?;
    match fields.text()?.as_str() {
        "seen" => {}
        "type" => return Err(reply::not_a_lock(&fields.text()?)),
        other => return Err(reply::unexpected(&other)),
    }
    let value = fields.text()?;
    let counter = fields.text()?;
    Ok(View {
        value: (!value.is_empty()).then_some(value),
        counter: counter.parse().ok().and_then(Token::new),
        holder: fields.holder()?,
        waiters: fields
            .texts()?
            .iter()
            .map(|json| reply::identity(json))
            .collect(),
    })
}

/// What a process is told on its channel at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The lock was released, and this waiter is first at this node; `by` tells releases apart.
    Free { owner: String, by: u64 },
    /// The lock was released, and this waiter is next.
    Next { owner: String },
    /// This owner's hold was broken.
    Broken { owner: String },
}

impl Notice {
    pub(crate) fn parse(payload: &str) -> Option<Self> {
        let mut words = payload.split(' ');
        let kind = words.next()?;
        let owner = words.next()?.to_owned();
        let notice = match kind {
            "free" => {
                let Who(by) = who(words.next()?);
                Self::Free { owner, by }
            }
            "next" => Self::Next { owner },
            "broken" => Self::Broken { owner },
            _ => return None,
        };
        words.next().is_none().then_some(notice)
    }

    pub(crate) fn owner(&self) -> &str {
        match self {
            Self::Free { owner, .. } | Self::Next { owner } | Self::Broken { owner } => owner,
        }
    }

    /// What tells a waiter that it is next.
    pub(crate) fn next(owner: &str) -> String {
        format!("next {owner}")
    }
}

/// A short mark of a value. Two that are alike by chance would only mislead a waiter about its turn.
fn who(value: &str) -> Who {
    // FNV-1a.
    let mark = |mark: u64, byte: u8| (mark ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Who(value.bytes().fold(0xcbf2_9ce4_8422_2325, mark))
}

fn number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        Error::new(
            ErrorKind::Bug,
            format!("a node's counter is {text:?}, which is no number"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_strictly() {
        let free = |payload| match Notice::parse(payload) {
            Some(Notice::Free { owner, by }) => (owner, by),
            other => panic!("{other:?}"),
        };
        assert_eq!(free("free abc 12345678.0"), free("free abc 12345678.0"));
        assert_ne!(free("free abc 12345678.0"), free("free abc 12345678.4"));
        let owner = "abc".to_owned();
        assert_eq!(
            Notice::parse(&Notice::next("abc")),
            Some(Notice::Next { owner })
        );
        for other in [
            "",
            "free abc",
            "free abc 1 x",
            "next",
            "next abc 1",
            "hello abc",
        ] {
            assert_eq!(Notice::parse(other), None, "{other}");
        }
    }
}
