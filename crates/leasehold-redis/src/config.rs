//! What a `redis://` URL says.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use crate::tls;

/// How long a connection may take to be made.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    tls::CA_FILE,
    tls::CLIENT_CERT_FILE,
    tls::CLIENT_KEY_FILE,
    "handover",
    "prefix",
];

#[derive(Clone)]
pub(crate) struct Config {
    /// Connects to the server.
    pub(crate) client: Client,
    /// The URL without secrets.
    pub(crate) shown: Arc<str>,
    /// Hand the lock from waiter to waiter without end, though clients that poll for it starve.
    pub(crate) always_hand_over: bool,
}

impl Config {
    pub(crate) fn of(mut url: StoreUrl) -> Result<Self> {
        let shown: Arc<str> = url.to_string().into();
        let handover = url.take("handover");
        let certificates = tls::certificates(&mut url)?;
        url.finish(PARAMETERS)?;
        let always_hand_over = match handover.as_deref() {
            None | Some("fair") => false,
            Some("always") => true,
            Some(_) => return Err(invalid("handover is \"fair\" (the default) or \"always\"")),
        };
        let (addr, database) = address(&url)?;
        let mut redis = RedisConnectionInfo::default()
            .set_db(database)
            .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        if let Some(user) = url.user() {
            redis = redis.set_username(user);
        }
        if let Some(password) = url.password() {
            redis = redis.set_password(password);
        } else if url.user().is_some() {
            return Err(invalid("it has a user and no password"));
        }
        let server = addr
            .into_connection_info()
            .map_err(|error| invalid(&error.to_string()))?
            .set_redis_settings(redis)
            .set_tcp_settings(
                TcpSettings::default()
                    .set_nodelay(true)
                    .set_keepalive(probes()),
            );
        let client = match certificates {
            Some(certificates) => Client::build_with_tls(server, certificates),
            None => Client::open(server),
        };
        Ok(Self {
            client: client.map_err(|error| invalid(&error.to_string()))?,
            shown,
            always_hand_over,
        })
    }
}

/// Probes find out within half a minute that the other end is gone without a word: a subscription sends nothing by
/// itself, and would listen for ever.
fn probes() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3)
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a Redis URL: {what}"))
}

fn address(url: &StoreUrl) -> Result<(ConnectionAddr, i64)> {
    if url.scheme() == "redis+unix" {
        if !url.hosts().is_empty() || url.path().len() < 2 {
            return Err(invalid(
                "redis+unix:// takes a path, as in redis+unix:///run/redis.sock",
            ));
        }
        return Ok((ConnectionAddr::Unix(PathBuf::from(url.path())), 0));
    }
    let (host, port) = host_and_port(url.hosts())?;
    let database = match url.path().trim_start_matches('/') {
        "" => 0,
        number => number
            .parse()
            .ok()
            .filter(|number| (0..=65_535).contains(number))
            .ok_or_else(|| {
                invalid("its path is the number of a database, as in redis://host:6379/0")
            })?,
    };
    if url.scheme() == "rediss" {
        tls::check_provider()?;
        let addr = ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        };
        return Ok((addr, database));
    }
    Ok((ConnectionAddr::Tcp(host, port), database))
}

fn host_and_port(text: &str) -> Result<(String, u16)> {
    if text.contains(',') {
        return Err(invalid(
            "one server takes one host; several are for redlock:// and the like",
        ));
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| invalid("an IPv6 address ends with ']'"))?;
        (host, rest.strip_prefix(':'))
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(invalid("it has no host, as in redis://localhost:6379"));
    }
    let port = match port {
        None => 6379,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| invalid("its port is no number from 1 to 65535"))?,
    };
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::of(StoreUrl::parse(url)?)
    }

    #[test]
    fn addresses_are_read() {
        for (url, addr) in [
            ("redis://cache", ConnectionAddr::Tcp("cache".into(), 6379)),
            (
                "redis://cache:7000/3",
                ConnectionAddr::Tcp("cache".into(), 7000),
            ),
            (
                "redis://[::1]:7000",
                ConnectionAddr::Tcp("::1".into(), 7000),
            ),
            (
                "redis+unix:///run/redis.sock",
                ConnectionAddr::Unix("/run/redis.sock".into()),
            ),
        ] {
            assert_eq!(
                config(url).unwrap().client.get_connection_info().addr(),
                &addr,
                "{url}"
            );
        }
        assert_eq!(
            config("redis://h/3")
                .unwrap()
                .client
                .get_connection_info()
                .redis_settings()
                .db(),
            3
        );
    }

    #[test]
    fn typos_are_errors_and_show_no_password() {
        for url in [
            "redis://",
            "redis://h:0",
            "redis://h:x",
            "redis://h/x",
            "redis://h/-1",
            "redis://h1,h2",
            "redis://me@h",
            "redis://h?handover=never",
            "redis://h?handovr=fair",
            "redis+unix://h/x",
            "redis://:canary@h:99999",
            "redis://me:canary@h?x=1",
            "rediss://h",
            "redis://h?ca-file=/etc/ssl/ca.pem",
            "rediss://h?client-cert-file=/c.pem",
            "rediss://h?client-key-file=/k.pem",
            "rediss://h?ca-file=/nowhere/ca.pem",
        ] {
            let error = config(url)
                .err()
                .unwrap_or_else(|| panic!("{url} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
