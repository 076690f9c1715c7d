//! What a `postgres://` URL says.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::pem::{self, PemFiles};
use leasehold_core::url::{StoreUrl, suggestion};
use leasehold_core::{Address, Error, ErrorKind, Result};
use rustls::ClientConfig;

use crate::keys::Scheme;
use crate::password::{self, Login};

const KEY: &str = "key";
const LEASE: &str = "lease";
const SSL_MODE: &str = "sslmode";
const SOCKET: &str = "host";

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    pem::CA_FILE,
    pem::CLIENT_CERT_FILE,
    pem::CLIENT_KEY_FILE,
    SOCKET,
    KEY,
    LEASE,
    "prefix",
    SSL_MODE,
];

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(Address),
    /// The folder of its unix socket.
    Folder(PathBuf),
}

/// The servers and how to speak with them.
#[derive(Clone)]
pub(crate) struct Config {
    /// Where the server is, or several that one of may be the primary.
    pub(crate) places: Vec<Place>,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    /// What is trusted; none where no TLS is spoken.
    pub(crate) tls: Option<ClientConfig>,
    pub(crate) scheme: Scheme,
    /// Whether TCP alone ends the session of a client that went away.
    pub(crate) lease_by_tcp: bool,
    /// The URL without secrets.
    pub(crate) shown: Arc<str>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.shown).finish()
    }
}

impl Config {
    /// Reads a URL; where it has no password, that is looked for by `env`.
    pub(crate) fn of(
        mut url: StoreUrl,
        env: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Self> {
        let shown: Arc<str> = url.to_string().into();
        let scheme = match url.take(KEY) {
            Some(text) => Scheme::parse(&text)?,
            None => Scheme::Sha256,
        };
        let lease_by_tcp = match url.take(LEASE).as_deref() {
            None => false,
            Some("tcp") => true,
            Some(_) => {
                return Err(invalid(
                    "lease has one value, tcp: that a session ends with its connection alone",
                ));
            }
        };
        let places = places(&mut url)?;
        let tls = tls(&mut url, &places)?;
        url.finish(PARAMETERS)?;
        let database = url.path().trim_start_matches('/').to_owned();
        if database.is_empty() || database.contains(['/', '\0']) {
            return Err(invalid(
                "its path names the database, as in postgres://user@host/app; each has locks of its own",
            ));
        }
        let user = url
            .user()
            .map(str::to_owned)
            .ok_or_else(|| invalid("it lacks a user, as in postgres://user@host/app"))?;
        let password = match url.password() {
            Some(password) => Some(password.to_owned()),
            None => password::find(login(&places, &database, &user), env)?,
        };
        Ok(Self {
            places,
            user,
            password,
            database,
            tls,
            scheme,
            lease_by_tcp,
            shown,
        })
    }
}

fn login<'a>(places: &'a [Place], database: &'a str, user: &'a str) -> Login<'a> {
    let (host, port) = match places.first() {
        Some(Place::Tcp(address)) => (address.host.as_str(), address.port),
        _ => ("localhost", 5432),
    };
    Login {
        host,
        port,
        database,
        user,
    }
}

fn places(url: &mut StoreUrl) -> Result<Vec<Place>> {
    let socket = url.take(SOCKET);
    match (url.hosts(), socket) {
        ("", Some(folder)) if folder.starts_with('/') => Ok(vec![Place::Folder(folder.into())]),
        (_, Some(_)) => Err(invalid(
            "host is the folder of a unix socket and stands alone, as in postgres://user@/app?host=/run/postgresql",
        )),
        ("", None) => Err(invalid(
            "it lacks a host, as in postgres://user@db.example:5432/app or postgres://user@/app?host=/run/postgresql",
        )),
        (_, None) => Ok(url.addresses(5432)?.into_iter().map(Place::Tcp).collect()),
    }
}

/// TLS is spoken with whoever isn't this host, and never given up for plain text.
fn tls(url: &mut StoreUrl, places: &[Place]) -> Result<Option<ClientConfig>> {
    let modes = ["disable", "require", "verify-ca", "verify-full"];
    let wanted = match url.take(SSL_MODE).as_deref() {
        Some("disable") => false,
        // All of them check the certificate and the name: less than people mean it never is.
        Some("require" | "verify-ca" | "verify-full") => true,
        Some(mode @ ("allow" | "prefer")) => {
            return Err(invalid(&format!(
                "sslmode={mode} falls back to plain text unseen; write verify-full or disable"
            )));
        }
        Some(mode) => {
            return Err(invalid(&format!(
                "there is no sslmode={mode}; {}",
                suggestion(mode, &modes)
            )));
        }
        None => !places.iter().all(is_here),
    };
    if !wanted {
        let files = [pem::CA_FILE, pem::CLIENT_CERT_FILE, pem::CLIENT_KEY_FILE];
        return match files.into_iter().find(|name| url.take(name).is_some()) {
            Some(name) => Err(invalid(&format!(
                "{name} is for TLS alone; write sslmode=verify-full, too"
            ))),
            None => Ok(None),
        };
    }
    if places.iter().any(|place| matches!(place, Place::Folder(_))) {
        return Err(invalid("no TLS is spoken over a unix socket"));
    }
    let files = PemFiles::take(url, &["postgres", "postgresql"])?;
    files.map(|files| files.client_config()).transpose()
}

/// Whether what is sent there doesn't leave this host.
fn is_here(place: &Place) -> bool {
    match place {
        Place::Folder(_) => true,
        Place::Tcp(address) => {
            let ip: Option<std::net::IpAddr> = address.host.parse().ok();
            address.host == "localhost" || ip.is_some_and(|ip| ip.is_loopback())
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a PostgreSQL URL: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Key;

    fn config(url: &str) -> Result<Config> {
        Config::of(StoreUrl::parse(url)?, |_| None)
    }

    #[test]
    fn servers_are_read() {
        let one = config("postgres://me:secret@localhost/app").unwrap();
        assert_eq!((one.user.as_str(), one.database.as_str()), ("me", "app"));
        assert_eq!(one.password.as_deref(), Some("secret"));
        assert!(!format!("{one:?}").contains("secret"));
        let two = config("postgresql://me@h1,[::1]:7/app?sslmode=disable&key=raw:1,2").unwrap();
        let shown: Vec<String> = two
            .places
            .iter()
            .map(|place| match place {
                Place::Tcp(address) => address.to_string(),
                Place::Folder(folder) => folder.display().to_string(),
            })
            .collect();
        assert_eq!(shown, ["h1:5432", "[::1]:7"]);
        assert!(matches!(two.scheme, Scheme::Raw(Key { .. })));
        let socket = config("postgres://me@/app?host=/run/postgresql&lease=tcp").unwrap();
        assert_eq!(socket.places, [Place::Folder("/run/postgresql".into())]);
        assert!(socket.lease_by_tcp);
        let variable = |name: &str| (name == "PGPASSWORD").then(|| "secret".into());
        let url = StoreUrl::parse("postgres://me@localhost/app").unwrap();
        let found = Config::of(url, variable).unwrap();
        assert_eq!(found.password.as_deref(), Some("secret"));
    }

    #[test]
    fn tls_is_spoken_with_other_hosts_unless_that_is_written() {
        for (url, tls) in [
            ("postgres://me@127.0.0.1/app", false),
            ("postgres://me@[::1],localhost/app", false),
            ("postgres://me@db.example/app", true),
            ("postgres://me@127.0.0.1,db.example/app", true),
            ("postgres://me@db.example/app?sslmode=disable", false),
            ("postgres://me@127.0.0.1/app?sslmode=require", true),
            ("postgres://me@127.0.0.1/app?sslmode=verify-full", true),
        ] {
            assert_eq!(config(url).unwrap().tls.is_some(), tls, "{url}");
        }
    }

    #[test]
    fn typos_are_errors_and_show_no_password() {
        for url in [
            "postgres://",
            "postgres://me@/app",
            "postgres://h/app",
            "postgres://me@localhost",
            "postgres://me@localhost/",
            "postgres://me@localhost/a/b",
            "postgres://me:canary@localhost:x/app",
            "postgres://me@localhost/app?host=/run/postgresql",
            "postgres://me@/app?host=run",
            "postgres://me@/app?host=/run&sslmode=require",
            "postgres://me@localhost/app?key=hashtxt",
            "postgres://me@localhost/app?lease=ttl",
            "postgres://me:canary@h/app?sslmode=prefer",
            "postgres://me:canary@h/app?sslmode=verifyfull",
            "postgres://me@localhost/app?ca-file=/etc/ssl/ca.pem",
            "postgres://me@h/app?ca-file=/nowhere/ca.pem",
            "postgres://me:canary@localhost/app?prefx=a",
        ] {
            let error = config(url)
                .err()
                .unwrap_or_else(|| panic!("{url} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
