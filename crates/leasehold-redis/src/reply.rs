//! What the scripts answer and the channel tells, read strictly.

use std::fmt::Debug;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::{Error, ErrorKind, Holder, Identity, Owner, Result, Token};
use redis::Value;

/// What a try was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TryReply {
    Granted(Token),
    Busy {
        holder: Holder,
        ours: bool,
        place: u32,
    },
    /// The owner was released before this try arrived.
    Gone,
}

/// What a process is told on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The lock is yours, counted from that try.
    Granted {
        owner: Owner,
        token: Token,
        number: u64,
        alive: Duration,
    },
    /// The lock is free and you come first.
    Free { owner: Owner },
    /// Your lock was broken.
    Broken { owner: Owner },
}

impl Message {
    pub(crate) fn owner(self) -> Owner {
        match self {
            Self::Granted { owner, .. } | Self::Free { owner } | Self::Broken { owner } => owner,
        }
    }

    /// Reads a payload; `None` for one that is not ours.
    pub(crate) fn parse(payload: &str) -> Option<Self> {
        let mut words = payload.split(' ');
        let kind = words.next()?;
        let owner = words.next()?.parse().ok()?;
        let message = match kind {
            "granted" => Self::Granted {
                owner,
                token: words.next()?.parse().ok()?,
                number: words.next()?.parse().ok()?,
                alive: Duration::from_millis(words.next()?.parse().ok()?),
            },
            "free" => Self::Free { owner },
            "broken" => Self::Broken { owner },
            _ => return None,
        };
        words.next().is_none().then_some(message)
    }
}

/// Walks over the fields of an answer.
pub(crate) struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    pub(crate) fn of(answer: Value) -> Result<Self> {
        match answer {
            Value::Array(fields) => Ok(Self(fields.into_iter())),
            other => Err(unexpected(&other)),
        }
    }

    fn next(&mut self) -> Result<Value> {
        self.0
            .next()
            .ok_or_else(|| unexpected(&"fewer fields than there are"))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        text(self.next()?)
    }

    /// The texts that are left.
    pub(crate) fn texts(self) -> Result<Vec<String>> {
        self.0.map(text).collect()
    }

    pub(crate) fn int(&mut self) -> Result<i64> {
        match self.next()? {
            Value::Int(number) => Ok(number),
            other => Err(unexpected(&other)),
        }
    }

    /// Expiry, token, time of the grant and identity of a holder; empty texts where it is not one of ours.
    pub(crate) fn holder(&mut self) -> Result<Holder> {
        let expires_in = millis(self.int()?);
        let token = self.text()?.parse().ok();
        let mut holder = Holder::new(token, expires_in);
        holder.since = self
            .text()?
            .parse()
            .ok()
            .map(|millis| UNIX_EPOCH + Duration::from_millis(millis));
        holder.identity = identity(&self.text()?);
        Ok(holder)
    }
}

fn text(field: Value) -> Result<String> {
    match field {
        Value::BulkString(bytes) => {
            String::from_utf8(bytes).map_err(|error| unexpected(&error.as_bytes()))
        }
        Value::SimpleString(text) => Ok(text),
        other => Err(unexpected(&other)),
    }
}

/// An identity as the store keeps it.
pub(crate) fn identity(json: &str) -> Option<Identity> {
    serde_json::from_str(json).ok()
}

/// A time to live as the server tells it; `None` for a key that has none.
fn millis(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().map(Duration::from_millis)
}

/// Reads the answer to a try.
pub(crate) fn try_reply(answer: Value) -> Result<TryReply> {
    if let Value::BulkString(token) = answer {
        return Ok(TryReply::Granted(text(Value::BulkString(token))?.parse()?));
    }
    let mut fields = Fields::of(answer)?;
    match fields.text()?.as_str() {
        "busy" => {
            let ours = fields.int()? == 1;
            let place = u32::try_from(fields.int()?).unwrap_or(u32::MAX);
            Ok(TryReply::Busy {
                holder: fields.holder()?,
                ours,
                place,
            })
        }
        "type" => Err(not_a_lock(&fields.text()?)),
        "gone" => Ok(TryReply::Gone),
        other => Err(unexpected(&other)),
    }
}

/// The key exists and is something else.
pub(crate) fn not_a_lock(kind: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the key of this name holds a {kind}, not a lock; choose another name, or a prefix with ?prefix=…"
        ),
    )
}

pub(crate) fn unexpected(found: &dyn Debug) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("the script answered {found:?} where something else was due"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_strictly() {
        let owner = Owner::random().unwrap();
        let read = |text: &str| Message::parse(&text.replace("abc", &owner.to_hex()));
        let granted = read("granted abc 17 3 10000").unwrap();
        assert_eq!(
            granted,
            Message::Granted {
                owner,
                token: Token::new(17).unwrap(),
                number: 3,
                alive: Duration::from_secs(10),
            }
        );
        assert_eq!(read("free abc").unwrap().owner(), owner);
        assert_eq!(Message::parse("free abc"), None);
        for other in [
            "",
            "granted abc",
            "granted abc 0 3 1",
            "granted abc 1 3 1 x",
            "free",
            "hello abc",
            "broken abc d",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
