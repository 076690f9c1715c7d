//! How any server of the store is reached: the same credentials and the same TLS, whichever it is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    TlsCertificates,
};

/// The port of a server that is named without one.
pub(crate) const PORT: u16 = 6379;

/// A server's host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Node {
    /// Reads `host:port`, `[host]:port` or a host alone.
    ///
    /// # Errors
    /// `Invalid`, saying what is wrong with it.
    pub(crate) fn parse(text: &str, port: u16) -> Result<Self> {
        let (host, given) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| invalid("an IPv6 address ends with ']'"))?;
            (host, rest.strip_prefix(':'))
        } else {
            // A server that redirects writes an IPv6 address without brackets.
            match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        let port = match given {
            None => port,
            Some(given) => given
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| invalid("its port is no number from 1 to 65535"))?,
        };
        Ok(Self {
            host: host.into(),
            port,
        })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Makes the driver's client for a server.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) settings: RedisConnectionInfo,
    pub(crate) tls: bool,
    pub(crate) certificates: Option<TlsCertificates>,
}

impl Dialer {
    /// A client for the server at a node.
    pub(crate) fn node(&self, node: &Node) -> Result<Client> {
        self.open(self.address(node), self.settings.clone())
    }

    /// As [`node`](Self::node), for a connection on which the server also speaks without being asked.
    pub(crate) fn listener(&self, node: &Node) -> Result<Client> {
        let settings = self.settings.clone().set_protocol(ProtocolVersion::RESP3);
        self.open(self.address(node), settings)
    }

    /// A client for the server at any address.
    pub(crate) fn at(&self, address: ConnectionAddr) -> Result<Client> {
        self.open(address, self.settings.clone())
    }

    /// A node's address.
    pub(crate) fn address(&self, node: &Node) -> ConnectionAddr {
        let (host, port) = (node.host.to_string(), node.port);
        if self.tls {
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        }
    }

    fn open(&self, address: ConnectionAddr, settings: RedisConnectionInfo) -> Result<Client> {
        let fault = |error: redis::RedisError| invalid(&error.to_string());
        let server = address
            .into_connection_info()
            .map_err(fault)?
            .set_redis_settings(settings)
            .set_tcp_settings(
                TcpSettings::default()
                    .set_nodelay(true)
                    .set_keepalive(probes()),
            );
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(server, certificates.clone()),
            None => Client::open(server),
        }
        .map_err(fault)
    }
}

impl fmt::Debug for Dialer {
    /// Shows no credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("tls", &self.tls)
            .finish_non_exhaustive()
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

pub(crate) fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a Redis URL: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_as_people_and_servers_write_them() {
        for (text, shown) in [
            ("h", "h:6379"),
            ("h:1", "h:1"),
            ("[::1]", "[::1]:6379"),
            ("[::1]:7", "[::1]:7"),
            ("::1:7", "[::1]:7"),
            (":7", ":7"),
        ] {
            assert_eq!(Node::parse(text, PORT).unwrap().to_string(), shown);
        }
        for text in ["h:0", "h:x", "[::1", "h:99999"] {
            Node::parse(text, PORT).unwrap_err();
        }
    }
}
