//! What an `etcd://` URL says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::pem::{self, PemFiles};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Address, Error, ErrorKind, Result};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Uri};

/// Where members listen for clients unless the URL says otherwise.
const PORT: u16 = 2379;
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
    pem::CA_FILE,
    pem::CLIENT_CERT_FILE,
    pem::CLIENT_KEY_FILE,
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
        let tls = PemFiles::take(&mut url, &["etcds"])?.map(tls);
        url.finish(PARAMETERS)?;
        if !matches!(url.path(), "" | "/") {
            return Err(invalid("it has a path; etcd has none"));
        }
        let login = url.login()?.map(|(user, password)| Login {
            user: user.to_owned(),
            password: password.to_owned(),
        });
        let hosts = url.addresses(PORT)?;
        let hosts: Vec<String> = hosts.iter().map(Address::to_string).collect();
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

fn tls(files: PemFiles) -> ClientTlsConfig {
    let tls = ClientTlsConfig::new();
    let tls = match files.ca {
        Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
        None => tls.with_native_roots(),
    };
    match files.client {
        Some(client) => tls.identity(Identity::from_pem(client.certificate, client.key)),
        None => tls,
    }
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
