//! From a name to the name of a `GET_LOCK`.
//!
//! The server's names are shorter than ours, and MySQL's know no case and not all characters. So a name is taken as it is
//! where both servers tell it from every other, and otherwise a part of it with a digest of all of it.

use leasehold_core::Name;
use sha2::{Digest, Sha256};

/// How long a lock's name may be on both.
const LONGEST: usize = 64;
/// How many hexadecimal digits a digest has: 128 bits.
const DIGITS: usize = 32;

/// The name by which the server knows a lock. No two names have one.
pub(crate) fn lock_name(name: &Name) -> String {
    let name = name.as_str();
    // Who takes a name that looks like one of a digest gets one of his own.
    if is_plain(name) && !has_digest(name) {
        return name.to_owned();
    }
    let readable = name.chars().take(LONGEST - DIGITS - 1).map(|c| {
        let c = c.to_ascii_lowercase();
        if is_readable(c) { c } else { '_' }
    });
    let digest = Sha256::digest(name);
    let digits = digest.iter().take(DIGITS / 2);
    readable
        .chain(['-'])
        .chain(digits.flat_map(|byte| [byte >> 4, byte & 15].map(hex)))
        .collect()
}

fn is_plain(name: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b' '..=b'~') && !byte.is_ascii_uppercase();
    name.len() <= LONGEST && name.bytes().all(fits)
}

fn is_readable(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./:".contains(c)
}

fn has_digest(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = name
        .len()
        .checked_sub(DIGITS)
        .and_then(|at| name.get(at..).zip(name.get(..at)));
    digits.is_some_and(|(digits, before)| digits.bytes().all(is_digit) && before.ends_with('-'))
}

fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> String {
        lock_name(&Name::new(name).unwrap())
    }

    #[test]
    fn a_name_that_both_servers_tell_from_every_other_is_taken_as_it_is() {
        let longest = "a".repeat(64);
        for name in ["jobs/report", "1234:x", "a b ", "it's", &longest] {
            assert_eq!(of(name), name);
        }
    }

    #[test]
    fn another_name_keeps_a_readable_part_and_never_has_the_lock_of_a_third() {
        // printf Jobs/Report | sha256sum
        assert_eq!(
            of("Jobs/Report"),
            "jobs/report-505b27cace108655718fc3d96aa5ac4c"
        );
        let names = [
            "jobs/report".to_owned(),
            "Jobs/report".to_owned(),
            "jobs/Report".to_owned(),
            "jobs/r\u{e9}port".to_owned(),
            "jobs/\u{1f600}".to_owned(),
            "a".repeat(65),
            "a".repeat(66),
            "a".repeat(200),
            of("Jobs/report"),
            of(&of("Jobs/report")),
        ];
        let locks: std::collections::HashSet<String> = names.iter().map(|name| of(name)).collect();
        assert_eq!(locks.len(), names.len());
        for lock in locks {
            assert!(lock.len() <= 64 && lock.is_ascii() && lock == lock.to_lowercase());
        }
    }
}
