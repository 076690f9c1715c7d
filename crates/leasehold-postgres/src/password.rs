//! Where a password is looked for that isn't in the URL: where the clients of PostgreSQL look.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use leasehold_core::{Error, ErrorKind, Result};

/// To whom a password is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) database: &'a str,
    pub(crate) user: &'a str,
}

/// The password of PGPASSWORD, or else of the file that PGPASSFILE names, or else of `~/.pgpass`.
pub(crate) fn find(
    login: Login<'_>,
    env: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>> {
    if let Some(password) = env("PGPASSWORD").filter(|password| !password.is_empty()) {
        let password = password.into_string();
        return password
            .map(Some)
            .map_err(|_| Error::new(ErrorKind::Invalid, "the password in PGPASSWORD isn't UTF-8"));
    }
    let named = env("PGPASSFILE").filter(|file| !file.is_empty());
    let own = || env("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let Some(file) = named.map(PathBuf::from).or_else(own) else {
        return Ok(None);
    };
    let Ok(meta) = fs::metadata(&file) else {
        return Ok(None);
    };
    if meta.permissions().mode() & 0o077 != 0 {
        // So do all clients; the server's refusal would say nothing of it.
        tracing::warn!(file = %file.display(), "ignored, as others than its owner may read it; run: chmod 600");
        return Ok(None);
    }
    let text = fs::read_to_string(&file).map_err(|error| {
        Error::new(
            ErrorKind::Invalid,
            format!("{} can't be read", file.display()),
        )
        .because(error)
    })?;
    Ok(text.lines().find_map(|line| password(line, login)))
}

/// The password of a line `host:port:database:user:password`, if that is for this login. `*` fits everything, and a
/// backslash takes from the next character what it means.
fn password(line: &str, login: Login<'_>) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line;
    let port = login.port.to_string();
    for wanted in [login.host, &port, login.database, login.user] {
        let (field, after) = field(rest)?;
        let any = rest.starts_with("*:");
        if !any && field != wanted {
            return None;
        }
        rest = after;
    }
    Some(unescaped(rest)).filter(|password| !password.is_empty())
}

/// The first field, and what follows its colon.
fn field(text: &str) -> Option<(String, &str)> {
    let mut escaped = false;
    let end = text.find(|c| {
        let ends = c == ':' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some((unescaped(&text[..end]), &text[end + 1..]))
}

fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIN: Login<'_> = Login {
        host: "db.example",
        port: 5432,
        database: "app",
        user: "me",
    };

    #[test]
    fn a_line_is_for_the_logins_that_it_fits() {
        for (line, found) in [
            ("db.example:5432:app:me:secret", Some("secret")),
            ("*:*:*:*:secret", Some("secret")),
            ("*:*:*:me:a:b", Some("a:b")),
            ("*:*:*:me:a\\:\\\\b", Some("a:\\b")),
            ("db.example:5433:app:me:secret", None),
            ("*:*:*:you:secret", None),
            ("#*:*:*:*:secret", None),
            ("\\*:*:*:*:secret", None),
            ("*:*:*:me:", None),
            ("*:*:*", None),
            ("", None),
        ] {
            assert_eq!(password(line, LOGIN).as_deref(), found, "{line}");
        }
    }

    #[test]
    fn the_variable_comes_first_and_a_file_that_others_may_read_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pass");
        fs::write(&file, "# mine\n*:*:other:*:no\n*:*:app:*:from file\n").unwrap();
        let only_file = |name: &str| (name == "PGPASSFILE").then(|| file.clone().into());
        let allow = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        allow(0o600);
        assert_eq!(
            find(LOGIN, only_file).unwrap().as_deref(),
            Some("from file")
        );
        let both = |name: &str| match name {
            "PGPASSWORD" => Some("from variable".into()),
            _ => only_file(name),
        };
        assert_eq!(find(LOGIN, both).unwrap().as_deref(), Some("from variable"));
        allow(0o640);
        assert_eq!(find(LOGIN, only_file).unwrap(), None);
        assert_eq!(find(LOGIN, |_| None).unwrap(), None);
    }
}
