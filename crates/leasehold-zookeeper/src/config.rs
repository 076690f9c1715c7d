//! What a `zookeeper://` URL says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::url::{StoreUrl, suggestion};
use leasehold_core::{Error, ErrorKind, Name, Result};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::keys::{self, Layout};
use crate::tls;
use crate::wire::{Acl, Kind, Request};

/// How long a connection may take to be made, where there is no other server to turn to.
const CONNECT: Duration = Duration::from_secs(4);
/// And where there is.
const CONNECT_OF_SEVERAL: Duration = Duration::from_secs(1);

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    tls::CA_FILE,
    tls::CLIENT_CERT_FILE,
    tls::CLIENT_KEY_FILE,
    "layout",
    "prefix",
];

/// The servers and how to speak with them.
pub(crate) struct Config {
    pub(crate) hosts: Vec<Host>,
    /// The node that everything is under, as `/a/b`; empty for the root.
    pub(crate) chroot: String,
    pub(crate) layout: Layout,
    /// `user:password`.
    pub(crate) login: Option<String>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The URL without secrets.
    pub(crate) shown: Arc<str>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Without the brackets of an IPv6 address.
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.shown).finish()
    }
}

impl Config {
    pub(crate) fn of(mut url: StoreUrl) -> Result<Self> {
        let shown: Arc<str> = url.to_string().into();
        let tls = tls::config(&mut url)?;
        let layout = match url.take("layout").as_deref() {
            None | Some("curator") => Layout::Curator,
            Some("kazoo") => Layout::Kazoo,
            Some(other) => {
                let meant = suggestion(other, &["curator", "kazoo"]);
                return Err(invalid(&format!("there is no layout \"{other}\"; {meant}")));
            }
        };
        url.finish(PARAMETERS)?;
        let login = match (url.user(), url.password()) {
            (None, None) => None,
            (Some(user), Some(_)) if user.contains(':') => {
                return Err(invalid(
                    "its user has a ':', which no user of ZooKeeper's can",
                ));
            }
            (Some(user), Some(password)) => Some(format!("{user}:{password}")),
            (Some(_), None) => return Err(invalid("it has a user and no password")),
            (None, Some(_)) => return Err(invalid("it has a password and no user")),
        };
        let hosts = url
            .hosts()
            .split(',')
            .map(host)
            .collect::<Result<Vec<_>>>()?;
        for host in hosts.iter().filter(|_| tls.is_some()) {
            if ServerName::try_from(host.name.as_str()).is_err() {
                return Err(invalid(&format!("\"{host}\" is no host")));
            }
        }
        Ok(Self {
            hosts,
            chroot: chroot(url.path())?,
            layout,
            login,
            tls,
            shown,
        })
    }

    /// How long a connection may take to be made.
    pub(crate) fn connect_max(&self) -> Duration {
        if self.hosts.len() > 1 {
            CONNECT_OF_SEVERAL
        } else {
            CONNECT
        }
    }

    /// Who may change what is made: with a user, that one alone.
    pub(crate) fn acl(&self) -> Acl {
        if self.login.is_some() {
            Acl::Maker
        } else {
            Acl::Open
        }
    }

    /// The node of a lock.
    pub(crate) fn path(&self, name: &Name) -> String {
        format!("{}/{}", self.chroot, keys::written(name.as_str()))
    }

    /// A node by its path from the root, without a slash before it.
    pub(crate) fn node(&self, path: &str) -> String {
        match path {
            "" => self.root().to_owned(),
            _ => format!("{}/{path}", self.chroot),
        }
    }

    /// Makes the node of a lock and those above it.
    pub(crate) fn parents(&self, lock: &str) -> Vec<Request> {
        let begin = self.chroot.len() + 1;
        let ends = lock[begin..].match_indices('/').map(|(at, _)| begin + at);
        let nodes = ends.chain([lock.len()]).map(|end| &lock[..end]);
        let create = |node| Request::create(node, &[], Kind::Container, self.acl());
        nodes.map(create).collect()
    }

    /// The node that everything is under.
    pub(crate) fn root(&self) -> &str {
        if self.chroot.is_empty() {
            "/"
        } else {
            &self.chroot
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a ZooKeeper URL: {what}"))
}

/// The path as a node's, which has no slash at its end.
fn chroot(path: &str) -> Result<String> {
    let node = path.trim_end_matches('/');
    let Some(name) = node.strip_prefix('/') else {
        return Ok(String::new());
    };
    // What a lock can't be named, a node can't either.
    Name::new(name).map_err(|error| invalid(&format!("its path is {}", error.message())))?;
    Ok(keys::written(node))
}

/// The host with its port, 2181 where it has none.
fn host(text: &str) -> Result<Host> {
    let (name, after) = match text.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .filter(|(host, _)| host.parse::<std::net::Ipv6Addr>().is_ok())
            .ok_or_else(|| invalid("an IPv6 address stands in brackets, as in [::1]:2181"))?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    if name.is_empty() {
        return Err(invalid(
            "it lacks a host, as in zookeeper://h1:2181,h2:2181",
        ));
    }
    let port = match after.strip_prefix(':') {
        None if after.is_empty() => 2181,
        port => port
            .and_then(|port| port.parse::<u16>().ok())
            .filter(|port| *port != 0)
            .ok_or_else(|| invalid("a port is a number from 1 to 65535"))?,
    };
    Ok(Host {
        name: name.to_owned(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::of(StoreUrl::parse(url)?)
    }

    #[test]
    fn servers_and_chroot_are_read() {
        for (url, hosts, chroot) in [
            ("zookeeper://h", "h:2181", ""),
            ("zookeeper://h1,h2:7,[::1]/", "h1:2181 h2:7 [::1]:2181", ""),
            (
                "zookeeper://me:secret@h/apps/one/?layout=kazoo",
                "h:2181",
                "/apps/one",
            ),
        ] {
            let config = config(url).unwrap();
            let shown: Vec<String> = config.hosts.iter().map(Host::to_string).collect();
            assert_eq!(
                (shown.join(" ").as_str(), config.chroot.as_str()),
                (hosts, chroot)
            );
        }
    }

    #[test]
    fn typos_are_errors_and_show_no_password() {
        for url in [
            "zookeeper://",
            "zookeeper://h,",
            "zookeeper://:2181",
            "zookeeper://h:0",
            "zookeeper://h:x",
            "zookeeper://::1",
            "zookeeper://[::1",
            "zookeeper://h//a",
            "zookeeper://h/zookeeper/a",
            "zookeeper://h/a/../b",
            "zookeeper://me@h",
            "zookeeper://:canary@h",
            "zookeeper://me:canary@h:x",
            "zookeeper://m%3Ae:canary@h",
            "zookeeper://h?layout=kazo",
            "zookeeper://h?ca-file=/etc/ssl/ca.pem",
            "zookeepers://h?client-cert-file=/c.pem",
            "zookeepers://h?ca-file=/nowhere/ca.pem",
        ] {
            let error = config(url)
                .err()
                .unwrap_or_else(|| panic!("{url} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
