//! What `~/.my.cnf` says of a client: there people keep what isn't to stand in a URL.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use leasehold_core::{Error, ErrorKind, Result};

/// The file's options for every client.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<String>,
    pub(crate) socket: Option<String>,
}

impl Options {
    /// Reads the user's file; nothing where there is none.
    pub(crate) fn read(env: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let Some(home) = env("HOME").filter(|home| !home.is_empty()) else {
            return Ok(Self::default());
        };
        let file = PathBuf::from(home).join(".my.cnf");
        let Ok(meta) = fs::metadata(&file) else {
            return Ok(Self::default());
        };
        if meta.permissions().mode() & 0o002 != 0 {
            // So do all clients: anybody may have written it.
            tracing::warn!(file = %file.display(), "ignored, as everybody may write it; run: chmod 600");
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&file).map_err(|error| {
            Error::new(
                ErrorKind::Invalid,
                format!("{} can't be read", file.display()),
            )
            .because(error)
        })?;
        Ok(Self::parse(&text))
    }

    /// The options of the group `[client]`; of one that is given twice the last counts.
    fn parse(text: &str) -> Self {
        let mut options = Self::default();
        let mut is_ours = false;
        for line in text.lines().map(str::trim) {
            if let Some(group) = line.strip_prefix('[') {
                is_ours = group.trim_end_matches(']').trim() == "client";
                continue;
            }
            let Some((name, value)) = line.split_once('=').filter(|_| is_ours) else {
                continue;
            };
            let place = match name.trim() {
                "user" => &mut options.user,
                "password" => &mut options.password,
                "host" => &mut options.host,
                "port" => &mut options.port,
                "socket" => &mut options.socket,
                _ => continue,
            };
            *place = Some(plain(value.trim())).filter(|value| !value.is_empty());
        }
        options
    }
}

/// A value without its quotes, or the comment behind it, and with what its backslashes mean.
fn plain(value: &str) -> String {
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let mut chars = value.chars().skip(usize::from(quote.is_some()));
    let mut plain = String::with_capacity(value.len());
    while let Some(c) = chars.next() {
        match c {
            '#' if quote.is_none() => return plain.trim_end().to_owned(),
            c if Some(c) == quote => break,
            '\\' => plain.extend(match chars.next() {
                Some('n') => Some('\n'),
                Some('t') => Some('\t'),
                Some('r') => Some('\r'),
                Some('b') => Some('\u{8}'),
                Some('s') => Some(' '),
                other => other,
            }),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_group_is_read_as_clients_read_it() {
        let file = "\
            password=no\n[mysqld]\nuser = mysql\n[client]\n# mine\nuser = me # not you\n\
            password = \"a#b c\\\\\"\nport=3307\n;host = h\nhost = 'db.example'\nssl\n[mysql]\nuser = other\n";
        let options = Options::parse(file);
        assert_eq!(options.user.as_deref(), Some("me"));
        assert_eq!(options.password.as_deref(), Some("a#b c\\"));
        assert_eq!(options.host.as_deref(), Some("db.example"));
        assert_eq!(options.port.as_deref(), Some("3307"));
        assert_eq!(options.socket, None);
        assert!(Options::parse("[client]\npassword=\n") == Options::default());
    }

    #[test]
    fn a_file_that_everybody_may_write_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".my.cnf");
        fs::write(&file, "[client]\nuser=me\n").unwrap();
        let env = |name: &str| (name == "HOME").then(|| home.path().into());
        let allow = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        allow(0o644);
        assert_eq!(Options::read(env).unwrap().user.as_deref(), Some("me"));
        allow(0o646);
        assert!(Options::read(env).unwrap() == Options::default());
        assert!(Options::read(|_| None).unwrap() == Options::default());
    }
}
