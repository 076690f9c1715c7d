//! From a URL to settings.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};

/// The parameters that may stand in the URL; `prefix` is the client's, who has taken it out by now.
const PARAMETERS: &[&str] = &["prefix"];

/// What a URL says.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The database file, absolute.
    pub(crate) path: PathBuf,
    /// The URL as errors show it.
    pub(crate) url: Arc<str>,
}

impl Settings {
    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        let refuse = |what: String| Err(Error::new(ErrorKind::Invalid, what));
        if url.user().is_some() || url.password().is_some() {
            return refuse(
                "an SQLite file has no user and no password: who may use it is a matter of file modes".into(),
            );
        }
        if !url.hosts().is_empty() {
            return refuse(format!(
                "\"{}\" stands where another store has its host; write an absolute path after three \
                 slashes, for example sqlite:///var/lib/leasehold/locks.db",
                url.hosts()
            ));
        }
        url.finish(PARAMETERS)?;
        let path = url.path();
        if path.is_empty() || path.ends_with('/') {
            return refuse(
                "the URL names no file; for example sqlite:///var/lib/leasehold/locks.db".into(),
            );
        }
        if path.contains('\0') {
            return refuse("the path has a zero byte in it".into());
        }
        Ok(Self {
            path: PathBuf::from(path),
            url: url.to_string().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings> {
        Settings::from_url(&StoreUrl::parse(text).unwrap())
    }

    #[test]
    fn an_absolute_path_is_a_file() {
        let settings = read("sqlite:///var/lib/a%20b/locks.db").unwrap();
        assert_eq!(settings.path, PathBuf::from("/var/lib/a b/locks.db"));
    }

    #[test]
    fn what_a_file_does_not_have_is_refused_and_not_ignored() {
        for (text, says) in [
            ("sqlite://locks.db", "three"),
            ("sqlite://host/locks.db", "three"),
            ("sqlite://me@/locks.db", "no user"),
            ("sqlite://:canary@/locks.db", "no password"),
            ("sqlite://", "names no file"),
            ("sqlite:///", "names no file"),
            ("sqlite:///var/lib/", "names no file"),
            ("sqlite:///a%00b", "zero byte"),
            ("sqlite:///a.db?prefx=a", "did you mean \"prefix\"?"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.to_string().contains(says), "{text}: {error}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
