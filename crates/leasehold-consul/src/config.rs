//! What a `consul://` URL says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::pem::{self, PemFiles};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};
use rustls::ClientConfig;

/// The longest lock-delay that Consul takes.
pub(crate) const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);

const LOCK_DELAY: &str = "lock-delay";
const DATACENTER: &str = "datacenter";

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    pem::CA_FILE,
    pem::CLIENT_CERT_FILE,
    pem::CLIENT_KEY_FILE,
    DATACENTER,
    LOCK_DELAY,
    "prefix",
];

/// The agents and how to speak with them.
pub(crate) struct Config {
    /// `http://host:port`, for each.
    pub(crate) endpoints: Vec<String>,
    pub(crate) tls: ClientConfig,
    /// Stands for whom we are.
    pub(crate) token: Option<String>,
    /// Where the locks are; none for where the agent is.
    pub(crate) datacenter: Option<String>,
    /// How long a lock whose session ended by itself is kept from everybody.
    pub(crate) lock_delay: Duration,
    /// The URL without secrets.
    pub(crate) shown: Arc<str>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.shown).finish()
    }
}

impl Config {
    pub(crate) fn of(mut url: StoreUrl) -> Result<Self> {
        let shown: Arc<str> = url.to_string().into();
        let tls = match PemFiles::take(&mut url, &["consuls"])? {
            Some(files) => files.client_config()?,
            None => pem::trusting_nobody()?,
        };
        let lock_delay = match url.take(LOCK_DELAY) {
            Some(text) => lock_delay(&text)?,
            None => Duration::ZERO,
        };
        let datacenter = url.take(DATACENTER);
        url.finish(PARAMETERS)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if datacenter
            .as_ref()
            .is_some_and(|name| name.is_empty() || !name.bytes().all(fits))
        {
            return Err(invalid(
                "a datacenter's name has letters, digits, '-' and '_'",
            ));
        }
        if !matches!(url.path(), "" | "/") {
            return Err(invalid(
                "it has a path; ?prefix=… puts a prefix before every name",
            ));
        }
        if url.user().is_some() {
            return Err(invalid(
                "it has a user; Consul knows tokens alone, and a token stands where a password does: consul://:TOKEN@host",
            ));
        }
        let token = url.password().map(str::to_owned);
        if token
            .as_ref()
            .is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(invalid("its token has characters that no token has"));
        }
        let (scheme, port) = if url.scheme() == "consuls" {
            ("https", 8501)
        } else {
            ("http", 8500)
        };
        let endpoints = url
            .addresses(port)?
            .iter()
            .map(|address| format!("{scheme}://{address}"))
            .collect();
        Ok(Self {
            endpoints,
            tls,
            token,
            datacenter,
            lock_delay,
            shown,
        })
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a Consul URL: {what}"))
}

/// Whole seconds, as `15s`.
fn lock_delay(text: &str) -> Result<Duration> {
    text.strip_suffix('s')
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .map(Duration::from_secs)
        .filter(|delay| *delay <= LOCK_DELAY_MAX)
        .ok_or_else(|| {
            invalid("lock-delay is a number of whole seconds from 0s to 60s, as in lock-delay=15s")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::of(StoreUrl::parse(url)?)
    }

    #[test]
    fn agents_are_read() {
        for (url, endpoints) in [
            ("consul://h", vec!["http://h:8500"]),
            (
                "consul://h1,h2:7,[::1]/",
                vec!["http://h1:8500", "http://h2:7", "http://[::1]:8500"],
            ),
            ("consuls://h", vec!["https://h:8501"]),
            ("consul://:secret@[::1]:7", vec!["http://[::1]:7"]),
        ] {
            assert_eq!(config(url).unwrap().endpoints, endpoints, "{url}");
        }
        let elsewhere = config("consul://h?datacenter=dc-2").unwrap();
        assert_eq!(elsewhere.datacenter.as_deref(), Some("dc-2"));
        let token = config("consul://:secret@h").unwrap();
        assert_eq!(token.token.as_deref(), Some("secret"));
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[test]
    fn the_lock_delay_is_none_unless_it_is_asked_for() {
        for (query, seconds) in [
            ("", 0),
            ("?lock-delay=0s", 0),
            ("?lock-delay=15s", 15),
            ("?lock-delay=60s", 60),
        ] {
            let config = config(&format!("consul://h{query}")).unwrap();
            assert_eq!(config.lock_delay, Duration::from_secs(seconds), "{query}");
        }
        for wrong in ["15", "61s", "-1s", "1.5s", "s", "", "1m", "+1s"] {
            assert!(
                config(&format!("consul://h?lock-delay={wrong}")).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn typos_are_errors_and_show_no_token() {
        for url in [
            "consul://",
            "consul://h,",
            "consul://:8500",
            "consul://h:0",
            "consul://h:x",
            "consul://h:70000",
            "consul://::1",
            "consul://[::1",
            "consul://h h",
            "consul://h/path",
            "consul://me@h",
            "consul://me:canary@h",
            "consul://:can%0Aary@h",
            "consul://:canary@h:x",
            "consul://h?ca-file=/etc/ssl/ca.pem",
            "consul://h?prefx=a",
            "consul://h?datacenter=",
            "consul://h?datacenter=a%26b",
            "consul://h?lockdelay=1s",
            "consuls://h?client-cert-file=/c.pem",
            "consuls://h?client-key-file=/k.pem",
            "consuls://h?ca-file=/nowhere/ca.pem",
        ] {
            let error = config(url)
                .err()
                .unwrap_or_else(|| panic!("{url} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
