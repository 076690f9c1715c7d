//! What an `etcd://` URL says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};
use tonic::transport::{ClientTlsConfig, Endpoint, Uri};

use crate::tls;

/// How long a connection may take to be made, where there is no other member to turn to.
const CONNECT: Duration = Duration::from_secs(4);
/// And where there is.
const CONNECT_OF_SEVERAL: Duration = Duration::from_secs(1);
/// Finds out that the other end is gone without a word. A server takes pings every five seconds at most.
const PING: Duration = Duration::from_secs(6);
/// How long an answer to a ping may take.
const PONG: Duration = Duration::from_secs(4);

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    tls::CA_FILE,
    tls::CLIENT_CERT_FILE,
    tls::CLIENT_KEY_FILE,
    "prefix",
];

/// The members and how to speak with them.
pub(crate) struct Config {
    pub(crate) endpoints: Vec<Endpoint>,
    /// The members as the URL names them.
    pub(crate) hosts: Vec<String>,
    pub(crate) login: Option<Login>,
    /// The URL without secrets.
    pub(crate) shown: Arc<str>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.shown).finish()
    }
}

/// A user and a password.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Config {
    pub(crate) fn of(mut url: StoreUrl) -> Result<Self> {
        let shown: Arc<str> = url.to_string().into();
        let tls = tls::config(&mut url)?;
        url.finish(PARAMETERS)?;
        if !matches!(url.path(), "" | "/") {
            return Err(invalid("it has a path; etcd has none"));
        }
        let login = match (url.user(), url.password()) {
            (None, None) => None,
            (Some(user), Some(password)) => Some(Login {
                user: user.to_owned(),
                password: password.to_owned(),
            }),
            (Some(_), None) => return Err(invalid("it has a user and no password")),
            (None, Some(_)) => return Err(invalid("it has a password and no user")),
        };
        let hosts = url
            .hosts()
            .split(',')
            .map(host_and_port)
            .collect::<Result<Vec<String>>>()?;
        let several = hosts.len() > 1;
        let endpoints = hosts
            .iter()
            .map(|host| endpoint(host, tls.as_ref(), several))
            .collect::<Result<_>>()?;
        Ok(Self {
            endpoints,
            hosts,
            login,
            shown,
        })
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("not an etcd URL: {what}"))
}

fn endpoint(host: &str, tls: Option<&ClientTlsConfig>, several: bool) -> Result<Endpoint> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let uri: Uri = format!("{scheme}://{host}")
        .parse()
        .map_err(|_| invalid(&format!("\"{host}\" is no host")))?;
    let connect = if several { CONNECT_OF_SEVERAL } else { CONNECT };
    let endpoint = Endpoint::from(uri)
        .connect_timeout(connect)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    match tls {
        None => Ok(endpoint),
        Some(tls) => endpoint.tls_config(tls.clone()).map_err(|error| {
            invalid("its certificates can't be used; are they PEM, and do certificate and key belong together?")
                .because(error)
        }),
    }
}

/// The host with its port, 2379 where it has none.
fn host_and_port(text: &str) -> Result<String> {
    let after_host = match text.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .filter(|(host, _)| host.parse::<std::net::Ipv6Addr>().is_ok())
            .map(|(_, after)| after)
            .ok_or_else(|| invalid("an IPv6 address stands in brackets, as in [::1]:2379"))?,
        None => &text[text.find(':').unwrap_or(text.len())..],
    };
    if after_host.len() == text.len() {
        return Err(invalid("it lacks a host, as in etcd://h1:2379,h2:2379"));
    }
    if after_host.is_empty() {
        return Ok(format!("{text}:2379"));
    }
    after_host
        .strip_prefix(':')
        .and_then(|port| port.parse::<u16>().ok())
        .filter(|port| *port != 0)
        .map(|_| text.to_owned())
        .ok_or_else(|| invalid("a port is a number from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::of(StoreUrl::parse(url)?)
    }

    #[test]
    fn members_are_read() {
        for (url, hosts) in [
            ("etcd://h", vec!["h:2379"]),
            (
                "etcd://h1,h2:7,[::1]",
                vec!["h1:2379", "h2:7", "[::1]:2379"],
            ),
            ("etcds://h/", vec!["h:2379"]),
            ("etcd://me:secret@[::1]:7", vec!["[::1]:7"]),
        ] {
            assert_eq!(config(url).unwrap().hosts, hosts, "{url}");
        }
    }

    #[test]
    fn typos_are_errors_and_show_no_password() {
        for url in [
            "etcd://",
            "etcd://h,",
            "etcd://:2379",
            "etcd://h:0",
            "etcd://h:x",
            "etcd://h:70000",
            "etcd://::1",
            "etcd://[::1",
            "etcd://h/path",
            "etcd://me@h",
            "etcd://:canary@h",
            "etcd://me:canary@h:x",
            "etcd://h?ca-file=/etc/ssl/ca.pem",
            "etcd://h?prefx=a",
            "etcds://h?client-cert-file=/c.pem",
            "etcds://h?client-key-file=/k.pem",
            "etcds://h?ca-file=/nowhere/ca.pem",
        ] {
            let error = config(url)
                .err()
                .unwrap_or_else(|| panic!("{url} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
