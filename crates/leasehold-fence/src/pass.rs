//! A token on its way from the holder to the resource, as text.

use std::fmt;
use std::str::FromStr;

use leasehold_core::{Error, ErrorKind, Name, Result};

use crate::mark::Mark;

/// A lock's name and the mark of a hold of it, as a holder sends them with a request: `jobs/report:41`.
///
/// A name may have colons in it; the last one counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pass {
    name: Name,
    mark: Mark,
}

impl Pass {
    /// The pass of a hold.
    #[must_use]
    pub fn new(name: Name, mark: Mark) -> Self {
        Self { name, mark }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The mark, for who compares it with marks of this lock alone; else [`of`](Self::of).
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// The mark, if the pass is one of this lock. Tokens of different locks can't be compared.
    ///
    /// # Errors
    /// `Invalid` when it is of another lock.
    pub fn of(&self, lock: &Name) -> Result<Mark> {
        if self.name == *lock {
            return Ok(self.mark);
        }
        let what = format!(
            "the token is one of the lock \"{}\", not of this one",
            self.name
        );
        Err(Error::new(ErrorKind::Invalid, what).named(lock.as_str()))
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.mark)
    }
}

impl FromStr for Pass {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes and nothing else. A signed pass is for [`Key::verify`].
    ///
    /// [`Key::verify`]: crate::Key::verify
    fn from_str(text: &str) -> Result<Self> {
        let (name, mark) = text.rsplit_once(':').ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "not a lock's name and token: they have a ':' between them, as in jobs/report:41",
            )
        })?;
        let mark = mark.parse().map_err(|error| {
            if crate::key::is_signature(mark) {
                return Error::new(
                    ErrorKind::Invalid,
                    "the token is signed, and there is no key to check it with",
                );
            }
            error
        })?;
        Ok(Self::new(Name::new(name)?, mark))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pass_is_read_from_its_end_and_strictly() {
        let pass: Pass = "a:7:b c:3.41".parse().unwrap();
        assert_eq!(pass.name().as_str(), "a:7:b c");
        assert_eq!(
            pass.of(&Name::new("a:7:b c").unwrap()).unwrap().to_string(),
            "3.41"
        );
        for text in [
            "", ":", "41", "a", "a:", ":41", "a:041", "a:41 ", "a:41:", "a/:41", "a\n:41", "a:0",
        ] {
            let error = text.parse::<Pass>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text:?}");
        }
    }

    #[test]
    fn a_token_of_another_lock_is_no_token_of_this_one() {
        let pass: Pass = "stock:41".parse().unwrap();
        let error = pass.of(&Name::new("stocks").unwrap()).unwrap_err();
        assert!(error.to_string().contains("\"stock\""), "{error}");
        assert!(error.to_string().contains("\"stocks\""), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_the_text_of_its_pass_or_an_error(text in "[a-c:./]{0,6}:[0-9.]{0,4}|\\PC{0,12}") {
            if let Ok(pass) = text.parse::<Pass>() {
                prop_assert_eq!(pass.to_string(), text);
            }
        }

        #[test]
        fn every_pass_reads_back(name in "[a-z:.0-9]{1,20}", epoch in any::<u32>(), token in 1..=u64::MAX) {
            prop_assume!(name != "." && name != ".." && name != "zookeeper");
            let mark = Mark::new(epoch, leasehold_core::Token::new(token).unwrap());
            let pass = Pass::new(Name::new(&name).unwrap(), mark);
            prop_assert_eq!(pass.to_string().parse::<Pass>().unwrap(), pass);
        }
    }
}
