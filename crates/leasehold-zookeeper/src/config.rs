//! What a `zookeeper://` URL says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::pem::{self, PemFiles};
use leasehold_core::url::{StoreUrl, suggestion};
use leasehold_core::{Address, Error, ErrorKind, Name, Result};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::keys::{self, Layout};
use crate::wire::{Acl, Kind, Request};

/// Where servers listen for clients unless the URL says otherwise.
const PORT: u16 = 2181;
/// How long a connection may take to be made, where there is no other server to turn to.
const CONNECT: Duration = Duration::from_secs(4);
/// And where there is.
const CONNECT_OF_SEVERAL: Duration = Duration::from_secs(1);

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    pem::CA_FILE,
    pem::CLIENT_CERT_FILE,
    pem::CLIENT_KEY_FILE,
    "layout",
    "prefix",
];

/// The servers and how to speak with them.
pub(crate) struct Config {
    pub(crate) hosts: Vec<Address>,
    /// The node that everything is under, as `/a/b`; empty for the root.
    pub(crate) chroot: String,
    pub(crate) layout: Layout,
    /// `user:password`.
    pub(crate) login: Option<String>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
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
        let tls = PemFiles::take(&mut url, &["zookeepers"])?
            .map(|files| files.client_config())
            .transpose()?
            .map(Arc::new);
        let layout = match url.take("layout").as_deref() {
            None | Some("curator") => Layout::Curator,
            Some("kazoo") => Layout::Kazoo,
            Some(other) => {
                let meant = suggestion(other, &["curator", "kazoo"]);
                return Err(invalid(&format!("there is no layout \"{other}\"; {meant}")));
            }
        };
        url.finish(PARAMETERS)?;
        let login = url.login()?;
        if login.is_some_and(|(user, _)| user.contains(':')) {
            return Err(invalid(
                "its user has a ':', which no user of ZooKeeper's can",
            ));
        }
        let login = login.map(|(user, password)| format!("{user}:{password}"));
        let hosts = url.addresses(PORT)?;
        for host in hosts.iter().filter(|_| tls.is_some()) {
            if ServerName::try_from(host.host.as_str()).is_err() {
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
            let shown: Vec<String> = config.hosts.iter().map(Address::to_string).collect();
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
