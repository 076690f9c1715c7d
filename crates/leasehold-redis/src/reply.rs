//! What the scripts answer and the channel tells, read strictly.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::{Error, ErrorKind, Holder, Identity, Result, Token};

/// One field of a script's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Int(i64),
    Text(String),
    Nil,
}

/// What a try was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TryReply {
    Granted {
        token: Token,
        ttl: Duration,
    },
    Busy {
        holder: Holder,
        ours: bool,
        place: u32,
    },
    /// The owner was released before this try arrived.
    Gone,
}

/// What a process is told on its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The lock is yours, counted from that try.
    Granted {
        owner: String,
        token: Token,
        number: u64,
        alive: Duration,
    },
    /// The lock is free and you come first.
    Free { owner: String },
    /// Your lock was broken.
    Broken { owner: String },
}

impl Message {
    pub(crate) fn owner(&self) -> &str {
        match self {
            Self::Granted { owner, .. } | Self::Free { owner } | Self::Broken { owner } => owner,
        }
    }

    /// Reads a payload; `None` for one that is not ours.
    pub(crate) fn parse(payload: &str) -> Option<Self> {
        let mut words = payload.split(' ');
        let kind = words.next()?;
        let owner = words.next()?.to_owned();
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
pub(crate) struct Fields(std::vec::IntoIter<Field>);

impl Fields {
    pub(crate) fn new(fields: Vec<Field>) -> Self {
        Self(fields.into_iter())
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        match self.0.next() {
            Some(Field::Text(text)) => Ok(text),
            Some(Field::Int(number)) => Ok(number.to_string()),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn int(&mut self) -> Result<i64> {
        match self.0.next() {
            Some(Field::Int(number)) => Ok(number),
            Some(Field::Text(text)) => text
                .parse()
                .map_err(|_| unexpected(&Some(Field::Text(text.clone())))),
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

impl Iterator for Fields {
    type Item = Field;

    fn next(&mut self) -> Option<Field> {
        self.0.next()
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
pub(crate) fn try_reply(fields: Vec<Field>) -> Result<TryReply> {
    let mut fields = Fields::new(fields);
    match fields.text()?.as_str() {
        "granted" => {
            let token = fields.text()?.parse()?;
            let _number = fields.text()?;
            let ttl = u64::try_from(fields.int()?).unwrap_or(0);
            Ok(TryReply::Granted {
                token,
                ttl: Duration::from_millis(ttl),
            })
        }
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
        other => Err(unexpected(&Some(Field::Text(other.to_owned())))),
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

pub(crate) fn unexpected(field: &Option<Field>) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("the script answered {field:?} where something else was due"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_strictly() {
        let granted = Message::parse("granted abc 17 3 10000").unwrap();
        assert_eq!(
            granted,
            Message::Granted {
                owner: "abc".into(),
                token: Token::new(17).unwrap(),
                number: 3,
                alive: Duration::from_secs(10),
            }
        );
        assert_eq!(Message::parse("free abc").unwrap().owner(), "abc");
        for other in [
            "",
            "granted abc",
            "granted abc 0 3 1",
            "granted abc 1 3 1 x",
            "free",
            "hello abc",
            "broken abc d",
        ] {
            assert_eq!(Message::parse(other), None, "{other}");
        }
    }
}
