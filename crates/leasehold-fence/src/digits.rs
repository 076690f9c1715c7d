//! Marks as text of one width, whose order is theirs: for stores that compare text, or numbers less exactly.

use leasehold_core::Token;

use crate::mark::Seen;

/// The digits of an epoch and of a mark.
const EPOCH: usize = 10;
const DIGITS: usize = 30;

pub(crate) fn write(seen: Seen) -> String {
    let token = seen.token().map_or(0, Token::get);
    format!("{:010}{token:020}", seen.epoch())
}

pub(crate) fn read(text: &str) -> Option<Seen> {
    let all = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    let (epoch, token) = all.then(|| text.split_at(EPOCH))?;
    Some(Seen::new(
        epoch.parse().ok()?,
        Token::new(token.parse().ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_that_is_too_large_is_no_mark() {
        for text in ["", "7", &"9".repeat(30), &"0".repeat(31), &"x".repeat(30)] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn digits_read_back_and_are_in_the_order_of_marks(
            a in (any::<u32>(), any::<u64>()), b in (any::<u32>(), any::<u64>())
        ) {
            let seen = |(epoch, token)| Seen::new(epoch, Token::new(token));
            let (a, b) = (seen(a), seen(b));
            prop_assert_eq!(read(&write(a)), Some(a));
            prop_assert_eq!(write(a).cmp(&write(b)), a.cmp(&b));
        }
    }
}
