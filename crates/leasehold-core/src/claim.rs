//! What is asked for: a claim, its owner, and the token a grant carries.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::holder::Identity;
use crate::name::Name;

/// Who holds: 128 random bits, new for every attempt.
///
/// Whoever knows it can release the hold, so its text goes to the store and nowhere else.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// A new owner from the system's random source.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the system has no randomness to give.
    pub fn random() -> Result<Self> {
        #[cfg(feature = "simulated")]
        if let Some(process) = crate::simulated::current() {
            let bits = || u128::from(process.host().bits());
            return Ok(Self((bits() << 64 | bits()).to_be_bytes()));
        }
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("the system gave no random bits: {error}"),
            )
        })?;
        Ok(Self(bits))
    }

    /// The owner as 32 lower-case hexadecimal digits, the form every store keeps.
    #[must_use]
    pub fn to_hex(self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(32);
        for byte in self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }
}

impl FromStr for Owner {
    type Err = Error;

    /// Reads what [`to_hex`](Owner::to_hex) writes. The error doesn't repeat the text.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = || {
            Error::new(
                ErrorKind::Invalid,
                "not an owner: 32 lower-case hexadecimal digits",
            )
        };
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(lower) {
            return Err(invalid());
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| invalid())?;
        Ok(Self(bits.to_be_bytes()))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to tell two apart in a log, too little to release with.
        write!(f, "Owner({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// The fencing token of a grant: it rises with every grant of one name on one store.
///
/// Hand it to the resource with every write and let the resource refuse a lower one than it has seen.
/// Tokens of different names or stores can't be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// A token of this value; zero is none.
    #[must_use]
    pub fn new(value: u64) -> Option<Self> {
        NonZeroU64::new(value).map(Self)
    }

    /// The token as a number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Token {
    type Err = Error;

    /// Reads a decimal number as [`Display`](fmt::Display) writes it: digits alone, no sign, no leading zero.
    fn from_str(text: &str) -> Result<Self> {
        let strict = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        strict
            .then(|| text.parse().ok())
            .flatten()
            .map(Self)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Invalid,
                    "not a token: a token is a decimal number from 1 to 18446744073709551615",
                )
            })
    }
}

/// What one attempt asks a store for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lock, prefix included: what the store excludes by.
    pub name: Name,
    /// New for every attempt.
    pub owner: Owner,
    /// How long a hold lasts without renewal.
    pub ttl: Duration,
    /// Whether a busy attempt takes a place in the store's queue. Without, a busy attempt leaves nothing behind.
    pub waits: bool,
    /// What others may see of the holder.
    pub identity: Arc<Identity>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_strictly() {
        for text in ["1", "18446744073709551615"] {
            assert_eq!(text.parse::<Token>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "0",
            "01",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1.0",
            "18446744073709551616",
            "x",
        ] {
            assert!(text.parse::<Token>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn owners_are_never_reused_and_never_shown_whole() {
        let owners: std::collections::HashSet<String> = (0..1000)
            .map(|_| Owner::random().unwrap().to_hex())
            .collect();
        assert_eq!(owners.len(), 1000);
        let owner = Owner::random().unwrap();
        assert_eq!(owner.to_hex().len(), 32);
        assert!(!format!("{owner:?}").contains(&owner.to_hex()[4..]));
    }

    #[test]
    fn an_owner_is_read_strictly() {
        let owner = Owner::random().unwrap();
        assert_eq!(owner.to_hex().parse::<Owner>().unwrap(), owner);
        for text in [
            "",
            "+0000000000000000000000000000000",
            &"G".repeat(32),
            &"A".repeat(32),
            &"a".repeat(33),
        ] {
            let error = text.parse::<Owner>().unwrap_err();
            assert!(
                text.is_empty() || !error.to_string().contains(text),
                "{error}"
            );
        }
    }
}
