//! What a write carries, what a resource has seen, and what comes of comparing them.

use std::fmt;
use std::str::FromStr;

use leasehold_core::{Error, ErrorKind, Result, Token};

/// What a write carries: the fencing token of its hold, in an epoch.
///
/// An epoch is what tokens can be compared in. It is 0 until locks move to a store whose tokens are lower than those of
/// the one before; then an operator begins the next one, and every write of an older epoch is stale.
///
/// As text it is the token, `41`; in a later epoch than 0 with the epoch before it, `3.41`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    // In the order they are compared.
    epoch: u32,
    token: Token,
}

impl Mark {
    /// The mark of a token in an epoch.
    #[must_use]
    pub fn new(epoch: u32, token: Token) -> Self {
        Self { epoch, token }
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(self) -> u32 {
        self.epoch
    }

    /// The token.
    #[must_use]
    pub fn token(self) -> Token {
        self.token
    }
}

/// A token in the first epoch.
impl From<Token> for Mark {
    fn from(token: Token) -> Self {
        Self::new(0, token)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            0 => self.token.fmt(f),
            epoch => write!(f, "{epoch}.{}", self.token),
        }
    }
}

impl FromStr for Mark {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes and nothing else, so that each mark has one text.
    fn from_str(text: &str) -> Result<Self> {
        let Some((epoch, token)) = text.split_once('.') else {
            return Ok(text.parse::<Token>()?.into());
        };
        let epoch = canonical(epoch).filter(|epoch| *epoch > 0).ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "not an epoch: before the '.' stands a decimal number from 1 to 4294967295; in epoch 0 the token \
                 stands alone",
            )
        })?;
        Ok(Self::new(epoch, token.parse()?))
    }
}

/// A decimal number as it is written: digits alone, no sign, no leading zero.
pub(crate) fn canonical<N: FromStr>(text: &str) -> Option<N> {
    let strict =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    strict.then(|| text.parse().ok()).flatten()
}

/// The highest mark a resource has seen; of an epoch that has just begun, no token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    // In the order they are compared; no token is less than any.
    epoch: u32,
    token: Option<Token>,
}

impl Seen {
    /// What has been seen: the epoch, and the token if one of it has been.
    #[must_use]
    pub fn new(epoch: u32, token: Option<Token>) -> Self {
        Self { epoch, token }
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(self) -> u32 {
        self.epoch
    }

    /// The highest token of the epoch.
    #[must_use]
    pub fn token(self) -> Option<Token> {
        self.token
    }

    /// The one rule: a mark is accepted if it is no lower than what has been seen. The same one again is the same
    /// holder.
    pub fn check(self, yours: Mark) -> Checked {
        if Self::from(yours) >= self {
            Checked::Accepted
        } else {
            Checked::Stale(Stale { seen: self, yours })
        }
    }
}

impl From<Mark> for Seen {
    fn from(mark: Mark) -> Self {
        Self::new(mark.epoch, Some(mark.token))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.epoch, self.token) {
            (epoch, Some(token)) => Mark::new(epoch, token).fmt(f),
            (0, None) => f.write_str("nothing"),
            (epoch, None) => write!(f, "nothing of epoch {epoch}"),
        }
    }
}

/// What a resource says to a mark. Being stale is a value, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stale write must not be made"]
pub enum Checked {
    /// It is the newest that has been seen, and the resource will remember it.
    Accepted,
    /// A newer one has been seen; nothing was changed.
    Stale(Stale),
}

/// A newer holder has been here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// What the resource has seen.
    pub seen: Seen,
    /// What the write carries.
    pub yours: Mark,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, yours } = self;
        write!(f, "stale: {seen} has been seen, and this write has {yours}")
    }
}

impl std::error::Error for Stale {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marks() -> impl Strategy<Value = Mark> {
        let token = (1..=u64::MAX).prop_map(|token| Token::new(token).unwrap());
        (prop_oneof![Just(0), any::<u32>()], token)
            .prop_map(|(epoch, token)| Mark::new(epoch, token))
    }

    #[test]
    fn a_mark_is_read_strictly() {
        for text in ["1", "41", "3.41", "4294967295.18446744073709551615"] {
            assert_eq!(text.parse::<Mark>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "0",
            "041",
            "+1",
            "1 ",
            ".1",
            "1.",
            "0.41",
            "03.41",
            "3.041",
            "3.0",
            "-3.1",
            "3.4.1",
            "4294967296.1",
            "3,41",
            "1e3",
        ] {
            assert!(text.parse::<Mark>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_epoch_outranks_every_token_of_those_before() {
        let mark = |text: &str| text.parse::<Mark>().unwrap();
        assert!(mark("1.1") > mark("18446744073709551615"));
        assert!(mark("10.1") > mark("9.2"));
        assert!(mark("41") > mark("9"));
        let begun = Seen::new(1, None);
        assert_eq!(begun.check(mark("1.1")), Checked::Accepted);
        assert!(matches!(begun.check(mark("41")), Checked::Stale(_)));
        assert_eq!(Seen::default().check(mark("1")), Checked::Accepted);
    }

    #[test]
    fn a_refusal_has_both_numbers() {
        let Checked::Stale(stale) = Seen::new(3, None).check("7".parse().unwrap()) else {
            panic!("accepted");
        };
        assert_eq!(
            stale.to_string(),
            "stale: nothing of epoch 3 has been seen, and this write has 7"
        );
    }

    proptest! {
        #[test]
        fn every_mark_reads_back(mark in marks()) {
            prop_assert_eq!(mark.to_string().parse::<Mark>().unwrap(), mark);
        }

        #[test]
        fn any_text_is_the_text_of_its_mark_or_an_error(text in "[0-9.]{0,24}|\\PC{0,8}") {
            if let Ok(mark) = text.parse::<Mark>() {
                prop_assert_eq!(mark.to_string(), text);
            }
        }

        #[test]
        fn of_two_marks_in_either_order_only_the_lower_one_is_ever_stale(a in marks(), b in marks()) {
            let (first, second) = (Seen::from(a).check(b), Seen::from(b).check(a));
            prop_assert_eq!(first == Checked::Accepted, b >= a);
            prop_assert_eq!(second == Checked::Accepted, a >= b);
        }
    }
}
