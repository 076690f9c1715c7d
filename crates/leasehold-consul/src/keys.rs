//! Which key a lock has.

use std::fmt::Write as _;

use leasehold_core::Name;

/// What the keys of locks have for flags; other clients set and compare it too.
pub(crate) const FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;

/// What follows the name.
const ENDING: &str = "/.lock";

/// The key of a lock.
pub(crate) fn key(name: &Name) -> String {
    format!("{name}{ENDING}")
}

/// The lock that has this key.
pub(crate) fn lock_of(key: &str) -> Option<Name> {
    Name::new(key.strip_suffix(ENDING)?).ok()
}

/// A key as it stands in a path: every byte encoded that isn't surely itself there. Names have no segments that a
/// server would take away.
pub(crate) fn encoded(key: &str) -> String {
    let mut path = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing into a text can't fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_key_and_that_is_its_own() {
        let name = Name::new("jobs/report").unwrap();
        assert_eq!(key(&name), "jobs/report/.lock");
        assert_eq!(lock_of("jobs/report/.lock"), Some(name));
        for other in [
            "jobs/report",
            "jobs/report/.lockx",
            "/.lock",
            ".lock",
            "jobs//.lock",
        ] {
            assert_eq!(lock_of(other), None, "{other}");
        }
    }

    #[test]
    fn keys_are_encoded_byte_by_byte() {
        for (key, path) in [
            ("a b/.lock", "a%20b/.lock"),
            ("ü%?#&+", "%C3%BC%25%3F%23%26%2B"),
            ("a~b_c-d.e", "a~b_c-d.e"),
        ] {
            assert_eq!(encoded(key), path);
        }
    }
}
