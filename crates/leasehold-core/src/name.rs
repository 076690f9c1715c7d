//! The name of a lock: one rule for every store.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The name of a lock, checked.
///
/// A name is 1 to 200 bytes of UTF-8 in segments separated by `/`. No segment is empty, `.` or `..`;
/// there are no control characters and no private-use characters (U+E000 to U+F8FF); the first segment
/// is not `zookeeper`, which that store keeps for itself. That is the strictest of all stores, so that a lock
/// can move from one store to another under the same name. Names that differ in case differ.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 200;

impl Name {
    /// Checks `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], saying what is wrong and where.
    pub fn new(name: &str) -> Result<Self> {
        match fault(name) {
            None => Ok(Self(name.into())),
            Some(fault) => Err(
                Error::new(ErrorKind::Invalid, format!("not a lock name: {fault}"))
                    .named(&shown(name)),
            ),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name for an error text: control characters escaped, and cut where it is far too long.
fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    if name.chars().nth(64).is_some() {
        text.push('…');
    }
    text
}

fn fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".into());
    }
    if name.len() > NAME_BYTES_MAX {
        return Some(format!(
            "it has {} bytes, the most is {NAME_BYTES_MAX}",
            name.len()
        ));
    }
    for (at, c) in name.char_indices() {
        if c.is_control() {
            return Some(format!("control character U+{:04X} at byte {at}", c as u32));
        }
        if ('\u{e000}'..='\u{f8ff}').contains(&c) {
            return Some(format!(
                "private-use character U+{:04X} at byte {at}",
                c as u32
            ));
        }
    }
    if name.starts_with('/') {
        return Some("it begins with '/'".into());
    }
    if name.ends_with('/') {
        return Some("it ends with '/'".into());
    }
    let mut at = 0;
    for segment in name.split('/') {
        match segment {
            "" => return Some(format!("empty segment at byte {at}")),
            "." | ".." => return Some(format!("segment \"{segment}\" at byte {at}")),
            _ => at += segment.len() + 1,
        }
    }
    if name.starts_with("zookeeper/") || name == "zookeeper" {
        return Some("\"zookeeper\" is reserved as its first segment".into());
    }
    None
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({:?})", &*self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_wrong_and_where_is_said() {
        let long = "x".repeat(201);
        for (name, says) in [
            ("", "empty"),
            (long.as_str(), "201 bytes"),
            ("/a", "begins with '/'"),
            ("a/", "ends with '/'"),
            ("a//b", "empty segment at byte 2"),
            ("a/./b", "segment \".\" at byte 2"),
            ("..", "segment \"..\" at byte 0"),
            ("a\nb", "U+000A at byte 1"),
            ("é\u{7f}", "U+007F at byte 2"),
            ("x\u{e000}", "U+E000 at byte 1"),
            ("x\u{f8ff}", "U+F8FF at byte 1"),
            ("zookeeper", "reserved"),
            ("zookeeper/quota", "reserved"),
        ] {
            let error = Name::new(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{name:?}: {error}");
            assert!(!error.to_string().contains('\n'), "{error:?}");
        }
    }

    #[test]
    fn people_s_names_are_fine() {
        let long = "é".repeat(100);
        for name in [
            "a",
            "jobs/report",
            "Jobs/Report",
            "a b",
            "a{b}",
            "...",
            "a/..b",
            "zookeepers",
            long.as_str(),
        ] {
            assert_eq!(Name::new(name).unwrap().as_str(), name);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_an_error(text in any::<String>()) {
            if let Ok(name) = Name::new(&text) {
                prop_assert_eq!(name.as_str(), text.as_str());
                prop_assert!((1..=NAME_BYTES_MAX).contains(&text.len()));
                prop_assert!(text.split('/').all(|segment| !matches!(segment, "" | "." | "..")));
            }
        }
    }
}
