//! What a URL of Redis says.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::pem;
use leasehold_core::url::StoreUrl;
use redis::{Client, ConnectionAddr, RedisConnectionInfo, TlsCertificates};

use crate::dial::{Dialer, Node, PORT, invalid};
use crate::replicas;
use crate::sentinel::{self, Sentinels};
use crate::tls;

/// How long a connection may take to be made: less than a caller commonly waits, so that it is told what went wrong.
pub(crate) const CONNECT: Duration = Duration::from_secs(4);

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    pem::CA_FILE,
    pem::CLIENT_CERT_FILE,
    pem::CLIENT_KEY_FILE,
    "handover",
    replicas::COUNT,
    replicas::TIMEOUT,
    "prefix",
];

/// Those of `redis+sentinel://` besides.
const SENTINEL_PARAMETERS: &[&str] = &[sentinel::MASTER, sentinel::USER, sentinel::PASSWORD_FILE];

pub(crate) struct Config {
    pub(crate) place: Place,
    /// The URL without secrets.
    pub(crate) shown: Arc<str>,
    /// Hand the lock from waiter to waiter without end, though clients that poll for it starve.
    pub(crate) always_hand_over: bool,
    /// The replicas that must have a grant before it is one.
    pub(crate) replicas: Option<replicas::Wanted>,
}

/// Where the servers are.
pub(crate) enum Place {
    /// One server.
    Server(Arc<Client>),
    /// The master that sentinels name.
    Sentinel(Arc<Sentinels>),
    /// A cluster, of which some nodes are known.
    Cluster(Dialer, Vec<Node>),
}

impl Config {
    pub(crate) fn of(mut url: StoreUrl) -> Result<Self> {
        let shown: Arc<str> = url.to_string().into();
        let handover = url.take("handover");
        let certificates = tls::certificates(&mut url)?;
        let replicas = replicas::wanted(&mut url)?;
        let named = sentinel::named(&mut url)?;
        let mut known = PARAMETERS.to_vec();
        if named.is_some() {
            known.extend(SENTINEL_PARAMETERS);
        }
        url.finish(&known)?;
        let always_hand_over = match handover.as_deref() {
            None | Some("fair") => false,
            Some("always") => true,
            Some(_) => return Err(invalid("handover is \"fair\" (the default) or \"always\"")),
        };
        let dialer = dialer(&url, certificates)?;
        let place = match (url.scheme(), named) {
            (_, Some(named)) => {
                let sentinels = nodes(&url, sentinel::PORT)?;
                Place::Sentinel(Arc::new(Sentinels::new(&sentinels, named, dialer)?))
            }
            ("redis+cluster" | "rediss+cluster", _) => Place::Cluster(dialer, nodes(&url, PORT)?),
            ("redis+unix", _) => Place::Server(Arc::new(dialer.at(socket(&url)?)?)),
            _ => Place::Server(Arc::new(dialer.node(&node(&url)?)?)),
        };
        Ok(Self {
            place,
            shown,
            always_hand_over,
            replicas,
        })
    }
}

/// How each server that the URL names is reached.
pub(crate) fn dialer(url: &StoreUrl, certificates: Option<TlsCertificates>) -> Result<Dialer> {
    if tls::is_tls(url) {
        tls::check_provider()?;
    }
    let mut settings = RedisConnectionInfo::default()
        .set_db(database(url)?)
        .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
    if let Some(user) = url.user() {
        settings = settings.set_username(user);
    }
    if let Some(password) = url.password() {
        settings = settings.set_password(password);
    } else if url.user().is_some() {
        return Err(invalid("it has a user and no password"));
    }
    Ok(Dialer {
        settings,
        tls: tls::is_tls(url),
        certificates,
    })
}

fn database(url: &StoreUrl) -> Result<i64> {
    if url.scheme() == "redis+unix" {
        return Ok(0);
    }
    let number = match url.path().trim_start_matches('/') {
        "" => 0,
        number => number
            .parse()
            .ok()
            .filter(|number| (0..=65_535).contains(number))
            .ok_or_else(|| {
                invalid("its path is the number of a database, as in redis://host:6379/0")
            })?,
    };
    if number != 0 && url.scheme().ends_with("+cluster") {
        return Err(invalid(
            "a cluster has database 0 alone; keep locks apart by ?prefix=…",
        ));
    }
    Ok(number)
}

fn socket(url: &StoreUrl) -> Result<ConnectionAddr> {
    if !url.hosts().is_empty() || url.path().len() < 2 {
        return Err(invalid(
            "redis+unix:// takes a path, as in redis+unix:///run/redis.sock",
        ));
    }
    Ok(ConnectionAddr::Unix(PathBuf::from(url.path())))
}

fn node(url: &StoreUrl) -> Result<Node> {
    if url.hosts().contains(',') {
        return Err(invalid(
            "one server takes one host; several are for redis+sentinel://, redis+cluster:// and redlock://",
        ));
    }
    host(url.hosts(), PORT)
}

/// The servers that the URL names.
pub(crate) fn nodes(url: &StoreUrl, port: u16) -> Result<Vec<Node>> {
    url.hosts()
        .split(',')
        .map(|text| host(text, port))
        .collect()
}

fn host(text: &str, port: u16) -> Result<Node> {
    if text.contains([';', ' ']) {
        return Err(invalid("hosts are separated by commas, as in h1,h2,h3"));
    }
    if !text.starts_with('[') && text.matches(':').count() > 1 {
        return Err(invalid(
            "an IPv6 address stands in brackets, as in [::1]:6379",
        ));
    }
    let node = Node::parse(text, port)?;
    if node.host.is_empty() {
        return Err(invalid(
            "a host is missing; write redis://localhost:6379, and several as h1,h2,h3",
        ));
    }
    Ok(node)
}

#[cfg(test)]
mod tests;
