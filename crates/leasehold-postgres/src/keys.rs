//! From a name to the key of an advisory lock.
//!
//! A database has two spaces of them that know nothing of each other: one number of 64 bits, or two of 32. Clients of
//! other makes each have a way of their own to make a key of a name, some of which are here so that leasehold and they
//! exclude each other.

use leasehold_core::url::suggestion;
use leasehold_core::{Error, ErrorKind, Name, Result};
use sha2::{Digest, Sha256};

/// What Rails multiplies the checksum of the database's name with, for the lock of its migrations.
const RAILS_SALT: i64 = 2_053_462_845;

/// How keys are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// The first 64 bits of the name's SHA-256.
    Sha256,
    /// The server's `hashtext(name)`.
    HashText,
    /// As the gem `with_advisory_lock` makes them.
    WithAdvisoryLock,
    /// The one that migrations of Rails take, whatever the name.
    Rails,
    /// This one, whatever the name.
    Raw(Key),
}

/// Which of the two spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// One number of 64 bits.
    One,
    /// Two numbers of 32 bits.
    Two,
}

/// The key of an advisory lock in its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) space: Space,
    /// The number, or the two of them, the first in the upper half.
    pub(crate) number: i64,
}

impl Key {
    pub(crate) fn one(number: i64) -> Self {
        Self {
            space: Space::One,
            number,
        }
    }

    fn two(first: i32, second: i32) -> Self {
        let second = i64::from(second.cast_unsigned());
        Self {
            space: Space::Two,
            number: i64::from(first) << 32 | second,
        }
    }

    /// As the functions take it.
    pub(crate) fn arguments(self) -> String {
        let number = self.number;
        match self.space {
            Space::One => format!("({number})::int8"),
            Space::Two => format!("({})::int4, ({})::int4", number >> 32, number << 32 >> 32),
        }
    }

    /// As the view `pg_locks` shows it: classid, objid and objsubid.
    pub(crate) fn parts(self) -> (i64, i64, i16) {
        let bits = self.number.cast_unsigned();
        let half = |bits: u64| i64::from(u32::try_from(bits).unwrap_or(0));
        let kind = match self.space {
            Space::One => 1,
            Space::Two => 2,
        };
        (half(bits >> 32), half(bits & 0xffff_ffff), kind)
    }

    /// Its text, as the table has it.
    pub(crate) fn text(self) -> String {
        let (class, object, kind) = self.parts();
        format!("{class}.{object}.{kind}")
    }

    /// What the lock is called: who excludes by name alone would take one key twice.
    pub(crate) fn lock(self) -> Result<Name> {
        Name::new(&self.text())
    }

    /// The key of a lock that is called so.
    pub(crate) fn of_lock(name: &Name) -> Option<Self> {
        let mut parts = name.as_str().split('.');
        let mut half = || parts.next()?.parse::<u32>().ok();
        let (class, object) = (half()?, half()?);
        let space = match parts.next()? {
            "1" => Space::One,
            "2" => Space::Two,
            _ => return None,
        };
        let number = u64::from(class) << 32 | u64::from(object);
        Some(Self {
            space,
            number: number.cast_signed(),
        })
    }
}

impl Scheme {
    /// Reads the parameter `key` of a URL.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let known = ["sha256", "hashtext", "with-advisory-lock", "rails", "raw:N"];
        match text {
            "sha256" => Ok(Self::Sha256),
            "hashtext" => Ok(Self::HashText),
            "with-advisory-lock" => Ok(Self::WithAdvisoryLock),
            "rails" => Ok(Self::Rails),
            _ => match text.strip_prefix("raw:") {
                Some(numbers) => raw(numbers).map(Self::Raw).ok_or_else(|| {
                    invalid(
                        "raw: is followed by a number of 64 bits or two of 32, as in key=raw:42 or key=raw:4,2",
                    )
                }),
                None => Err(invalid(&format!(
                    "there is no key={text}; {}",
                    suggestion(text, &known)
                ))),
            },
        }
    }

    /// The key of a name; none where only the server knows it.
    pub(crate) fn key(self, name: &str, database: &str) -> Option<Key> {
        Some(match self {
            Self::Sha256 => {
                let digest = Sha256::digest(name);
                let first = digest.iter().take(8);
                Key::one(first.fold(0, |number, byte| number << 8 | i64::from(*byte)))
            }
            Self::HashText => return None,
            // The second number is made of an environment variable that is mostly not set.
            Self::WithAdvisoryLock => Key::two((crc32(name) & 0x7fff_ffff).cast_signed(), 0),
            Self::Rails => Key::one(RAILS_SALT.wrapping_mul(i64::from(crc32(database)))),
            Self::Raw(key) => key,
        })
    }
}

fn raw(numbers: &str) -> Option<Key> {
    match numbers.split_once(',') {
        Some((first, second)) => Some(Key::two(first.parse().ok()?, second.parse().ok()?)),
        None => Some(Key::one(numbers.parse().ok()?)),
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a PostgreSQL URL: {what}"))
}

/// The checksum of zip and of Ruby's Zlib.
fn crc32(text: &str) -> u32 {
    let step = |sum: u32| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
    !text.bytes().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| step(sum))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_other_clients_make() {
        let key = |scheme: &str, name: &str| {
            Scheme::parse(scheme)
                .unwrap()
                .key(name, "app_production")
                .unwrap()
        };
        // printf foo | sha256sum
        assert_eq!(
            key("sha256", "foo").number,
            0x2c26_b46b_68ff_c68f_u64.cast_signed()
        );
        assert_eq!(crc32("123456789"), 0xcbf4_3926);
        let gem = key("with-advisory-lock", "foo");
        assert_eq!(gem, Key::two((0x8c73_6521_u32 & 0x7fff_ffff) as i32, 0));
        let rails = key("rails", "whatever");
        assert_eq!(
            rails.number,
            2_053_462_845 * i64::from(crc32("app_production"))
        );
        assert_eq!(key("raw:-1", "x"), Key::one(-1));
        assert_eq!(key("raw:7,-1", "x"), Key::two(7, -1));
        assert_eq!(Scheme::HashText.key("x", "db"), None);
    }

    #[test]
    fn a_key_is_named_as_the_server_shows_it() {
        assert_eq!(Key::one(-1).parts(), (4_294_967_295, 4_294_967_295, 1));
        assert_eq!(Key::one(42).text(), "0.42.1");
        assert_eq!(Key::two(-1, -2).parts(), (4_294_967_295, 4_294_967_294, 2));
        assert_eq!(Key::two(1, 2).lock().unwrap().as_str(), "1.2.2");
        for key in [Key::one(-1), Key::one(42), Key::two(-1, -2), Key::two(1, 2)] {
            assert_eq!(Key::of_lock(&key.lock().unwrap()), Some(key));
        }
        assert_eq!(Key::of_lock(&Name::new("1.2.3").unwrap()), None);
    }

    #[test]
    fn typos_are_errors() {
        for text in [
            "",
            "sha265",
            "raw",
            "raw:",
            "raw:x",
            "raw:1,",
            "raw:1,2,3",
            "raw:1,3000000000",
        ] {
            let error = Scheme::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        }
        let error = Scheme::parse("sha265").unwrap_err();
        assert!(error.to_string().contains("sha256"), "{error}");
    }
}
