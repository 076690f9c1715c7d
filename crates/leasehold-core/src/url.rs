//! The store URL: one form everywhere, read strictly.
//!
//! `scheme://[user[:password]@]hosts/path[?parameter=value&…]`. Several hosts are separated by commas. An
//! unknown parameter is an error, with the one that was probably meant: a typo in a TTL or a prefix must
//! not silently do nothing.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// A parsed store URL. Its [`Display`](fmt::Display) and [`Debug`] forms never show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    hosts: String,
    path: String,
    params: Vec<(String, String)>,
}

impl StoreUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; the text repeats nothing that could be a password.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid =
            |what: &str| Error::new(ErrorKind::Invalid, format!("not a store URL: {what}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            invalid(
                "it needs the form scheme://…, for example sqlite:///var/lib/leasehold/locks.db",
            )
        })?;
        let scheme_fits = !scheme.is_empty()
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'+');
        if !scheme_fits {
            return Err(invalid(
                "its scheme may hold lower-case letters, digits and '+'",
            ));
        }
        if rest.contains('#') {
            return Err(invalid(
                "it has a '#'; write %23 where you mean the character",
            ));
        }
        let (authority, path_and_query) =
            rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // Then what stands before it is the beginning of a password, and is not to be shown as a host.
        if !authority.is_empty() && path_and_query.contains('@') {
            return Err(invalid(
                "it has an '@' behind the hosts; write %2F, %3F and %40 for '/', '?' and '@' in a user or a password",
            ));
        }
        let (path, query) = path_and_query
            .split_once('?')
            .unwrap_or((path_and_query, ""));
        // The last '@', because a password that was not encoded may hold one.
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        // A user for each host, most likely: then all hosts but the last would be read as a password.
        if credentials.is_some_and(|both| both.contains('@') && both.contains(',')) {
            return Err(invalid(
                "it has an '@' twice; user and password stand once, before the first host; write %40 and %2C for \
                 '@' and ',' in them",
            ));
        }
        // What stands there is a password most likely, behind which the host was forgotten, and is not to be shown.
        if credentials.is_none() && hosts.split(',').any(has_odd_port) {
            return Err(invalid(
                "a port is a number from 1 to 65535; behind a user and a password comes a host: user:password@host",
            ));
        }
        let (user, password) = match credentials {
            None => (None, None),
            Some(credentials) => match credentials.split_once(':') {
                Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
                None => (Some(decode(credentials)?), None),
            },
        };
        Ok(Self {
            scheme: scheme.to_owned(),
            user: user.filter(|user| !user.is_empty()),
            password: password.filter(|password| !password.is_empty()),
            hosts: hosts.to_owned(),
            path: decode(path)?,
            params: params(query)?,
        })
    }

    /// The part before `://`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The hosts as written, `h1:1,h2:2`.
    #[must_use]
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// The path with its leading `/`, decoded; empty where there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Sets the password, for one that was kept apart from the URL.
    pub fn set_password(&mut self, password: String) {
        self.password = Some(password);
    }

    /// Who writes a token where a user goes has only forgotten the colon before it.
    fn is_user_secret(&self) -> bool {
        let fits = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        let is_token = |user: &String| user.len() >= 20 && user.bytes().all(fits);
        self.user.as_ref().is_some_and(is_token)
    }

    /// Whether it holds what [`Display`](fmt::Display) doesn't show: a URL that must not stand on a command
    /// line.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        self.password.is_some()
            || self.is_user_secret()
            || self.params.iter().any(|(name, _)| is_secret(name))
    }

    /// Takes a parameter out.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.params.iter().position(|(key, _)| key == name)?;
        Some(self.params.remove(at).1)
    }

    /// Says that all parameters have been taken; `known` are those this store has.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when one is left, naming it and the nearest known one.
    pub fn finish(&self, known: &[&str]) -> Result<()> {
        let Some((left, _)) = self.params.first() else {
            return Ok(());
        };
        Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "unknown URL parameter \"{left}\" for {}://; {}",
                self.scheme,
                suggestion(left, known)
            ),
        ))
    }
}

/// What to write instead of `word`: the nearest of `known`, or all of them.
#[must_use]
pub fn suggestion(word: &str, known: &[&str]) -> String {
    let lower = word.to_lowercase();
    let nearest = known
        .iter()
        .map(|known| (distance(&lower, known), *known))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    match nearest {
        Some((_, nearest)) => format!("did you mean \"{nearest}\"?"),
        None if known.is_empty() => "there are none".into(),
        None => format!("known: {}", known.join(", ")),
    }
}

/// The Levenshtein distance, by one row of the table.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Whether something else than a number stands where a port does.
fn has_odd_port(host: &str) -> bool {
    let port = host.split_once(':').map(|(_, port)| port);
    // An address has more colons, and what is wrong with it is no secret.
    let port = port.filter(|port| !host.starts_with('[') && !port.contains(':'));
    port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn params(query: &str) -> Result<Vec<(String, String)>> {
    let mut params: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("not a store URL: its parameter \"{pair}\" has no value; write {pair}=…"),
            ));
        };
        let name = decode(name)?;
        if params.iter().any(|(known, _)| *known == name) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("not a store URL: its parameter \"{name}\" is given twice"),
            ));
        }
        params.push((name, decode(value)?));
    }
    Ok(params)
}

/// Percent-decodes (RFC 3986, section 2.1).
fn decode(text: &str) -> Result<String> {
    let fault = || {
        Error::new(
            ErrorKind::Invalid,
            "not a store URL: a '%' must be followed by two hexadecimal digits, and the result must be UTF-8",
        )
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let digits = after.get(..2).ok_or_else(fault)?;
            let digit = |at: usize| char::from(digits[at]).to_digit(16);
            let (high, low) = digit(0).zip(digit(1)).ok_or_else(fault)?;
            // Two hexadecimal digits fit a byte.
            bytes.push((high * 16 + low) as u8);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_err(|_| fault())
}

/// Whether a parameter's value is a secret, and not the name of a file that holds one. A mistyped name may be meant for
/// one.
fn is_secret(param: &str) -> bool {
    let telling = ["pass", "pwd", "secret", "token", "auth", "cred", "apikey"];
    let meant = ["password", "passwd", "secret", "token", "api-key"];
    let param = param.to_lowercase();
    !param.ends_with("-file")
        && (telling.iter().any(|part| param.contains(part))
            || meant.iter().any(|name| distance(&param, name) <= 2))
}

/// Text with everything percent-encoded that would be read as something else, or drive a terminal.
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; 4];
        for c in self.0.chars() {
            if c.is_control() || c.is_whitespace() || "%?#&@".contains(c) {
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    write!(f, "%{byte:02X}")?;
                }
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match (&self.user, &self.password) {
            (None, None) => {}
            (user, password) => {
                match user {
                    Some(_) if self.is_user_secret() => f.write_str("***")?,
                    Some(user) => write!(f, "{}", Encoded(user))?,
                    None => {}
                }
                if password.is_some() {
                    f.write_str(":***")?;
                }
                f.write_str("@")?;
            }
        }
        write!(f, "{}{}", self.hosts, Encoded(&self.path))?;
        for (at, (name, value)) in self.params.iter().enumerate() {
            let value = if is_secret(name) { "***" } else { value };
            let separator = if at == 0 { '?' } else { '&' };
            write!(f, "{separator}{}={}", Encoded(name), Encoded(value))?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_in_its_parts() {
        let mut url = StoreUrl::parse("redis://me:p%40ss@h1:1,h2/0?prefix=a%2Fb%3A&x=1").unwrap();
        assert_eq!(url.scheme(), "redis");
        assert_eq!(url.user(), Some("me"));
        assert_eq!(url.password(), Some("p@ss"));
        assert_eq!(url.hosts(), "h1:1,h2");
        assert_eq!(url.path(), "/0");
        assert_eq!(url.take("prefix").as_deref(), Some("a/b:"));
        let error = url.finish(&["prefix", "y"]).unwrap_err();
        assert!(error.to_string().contains("did you mean \"y\"?"), "{error}");
        let hint = suggestion("PREFIX", &["x", "prefix"]);
        assert_eq!(hint, "did you mean \"prefix\"?");
    }

    #[test]
    fn a_password_is_never_shown() {
        let url =
            StoreUrl::parse("redis://me:canary@h/0?auth-token=canary&password-file=/f").unwrap();
        for shown in [url.to_string(), format!("{url:?}")] {
            assert!(!shown.contains("canary"), "{shown}");
            assert!(shown.contains("/f"), "{shown}");
        }
        for mistyped in [
            "pasword", "Password", "passord", "tokn", "sercet", "apikey", "creds",
        ] {
            let url =
                StoreUrl::parse(&format!("redis://h?{mistyped}=canary&prefix=shown")).unwrap();
            assert!(!url.to_string().contains("canary"), "{url}");
            assert!(url.to_string().contains("shown"), "{url}");
        }
        let url = StoreUrl::parse("store://5a0c18d3-2ddc-cbc0-58a5-0c185a0c18d3@h").unwrap();
        assert_eq!(url.to_string(), "store://***@h");
        assert!(url.has_secret());
        for text in [
            "me:canary@h",
            "redis://me:canary%zz@h",
            "Redis://me:canary@h",
            "redis://me:canary@h/#",
            "redis://me:canary@h1,me:canary@h2",
            "redis://me:canary/0",
        ] {
            let error = StoreUrl::parse(text).unwrap_err();
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same_url() {
        for text in [
            "sqlite:///a%20b/%3F%23%25%1B%C3%BC.db?prefix=a%26b%3D/",
            "redis://m%40e@h1:1,h2/0?password-file=/run/x",
        ] {
            let url = StoreUrl::parse(text).unwrap();
            assert!(!url.has_secret(), "{text}");
            assert_eq!(StoreUrl::parse(&url.to_string()).unwrap(), url, "{url}");
            assert!(!url.to_string().contains(['\u{1b}', ' ']), "{url}");
        }
        for text in ["redis://:x@h", "consul://h?token=x", "redis://h?password=x"] {
            assert!(StoreUrl::parse(text).unwrap().has_secret(), "{text}");
        }
    }

    #[test]
    fn a_password_that_was_not_encoded_is_no_host_and_no_parameter() {
        for text in [
            "redis://me:can/ary@h:1/0",
            "redis://me:can?ary@h/0",
            "redis://me:can?ary=@h/0",
        ] {
            let error = StoreUrl::parse(text).unwrap_err();
            assert!(!error.to_string().contains("ary"), "{error}");
            assert!(error.to_string().contains("%2F"), "{error}");
        }
        assert_eq!(
            StoreUrl::parse("sqlite:///home/me@here/locks.db")
                .unwrap()
                .path(),
            "/home/me@here/locks.db"
        );
        let url = StoreUrl::parse("redis://h/0?passwd=canary").unwrap();
        assert!(!url.to_string().contains("canary"), "{url}");
    }

    #[test]
    fn typos_are_errors() {
        for text in [
            "",
            "sqlite:/x",
            "sqlite:///x?prefix",
            "sqlite:///x?a=1&a=2",
            "sqlite:///%f",
        ] {
            assert_eq!(
                StoreUrl::parse(text).unwrap_err().kind(),
                ErrorKind::Invalid,
                "{text}"
            );
        }
    }
}
