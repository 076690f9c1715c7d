//! What a URL of Redlock says.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::pem;
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};

use super::nodes::{NODES_MAX, NODES_MIN, Quorum};
use crate::config::{dialer, nodes};
use crate::dial::{Dialer, Node, PORT, invalid};
use crate::tls;

/// How long a node may take to answer.
const NODE_TIMEOUT: &str = "node-timeout";
const NODE_TIMEOUT_DEFAULT: Duration = Duration::from_millis(500);
const NODE_TIMEOUT_MAX: Duration = Duration::from_secs(3);

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    pem::CA_FILE,
    pem::CLIENT_CERT_FILE,
    pem::CLIENT_KEY_FILE,
    NODE_TIMEOUT,
    "prefix",
];

/// What one server, Sentinel or Cluster can do and several independent nodes can't, with the reason.
const REFUSED: &[(&str, &str)] = &[
    (
        "handover",
        "no node can hand a lock over alone: a waiter is told, and asks a majority",
    ),
    (
        "min-replicas",
        "a grant waits for a majority of nodes, and nodes have no replicas",
    ),
    (
        "replica-timeout",
        "nodes have no replicas; node-timeout is how long a node may take",
    ),
    ("master", "every node is a master, and all are named"),
];

pub(crate) struct Config {
    pub(super) quorum: Quorum,
    /// In one order for every client, however its URL has them: who comes first goes by it.
    pub(super) nodes: Vec<Node>,
    pub(super) dialer: Dialer,
    /// The URL without secrets.
    pub(super) shown: Arc<str>,
    pub(super) node_timeout: Duration,
}

impl Config {
    pub(crate) fn of(mut url: StoreUrl) -> Result<Self> {
        let shown: Arc<str> = url.to_string().into();
        for (parameter, reason) in REFUSED {
            if url.take(parameter).is_some() {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("Redlock can't do {parameter}: {reason}"),
                ));
            }
        }
        let certificates = tls::certificates(&mut url)?;
        let node_timeout = url.take(NODE_TIMEOUT);
        url.finish(PARAMETERS)?;
        let node_timeout = match node_timeout {
            Some(text) => timeout(&text)?,
            None => NODE_TIMEOUT_DEFAULT,
        };
        let mut nodes = nodes(&url, PORT)?;
        nodes.sort();
        if let Some(twice) = nodes.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid(&format!(
                "{} is named twice, and one server has one vote",
                twice[0]
            )));
        }
        let quorum = Quorum::of(nodes.len()).ok_or_else(|| {
            invalid(&format!(
                "Redlock takes {NODES_MIN} to {NODES_MAX} nodes, better an odd number, and this names {}; redis:// is \
                 for one server",
                nodes.len()
            ))
        })?;
        Ok(Self {
            quorum,
            nodes,
            dialer: dialer(&url, certificates)?,
            shown,
            node_timeout,
        })
    }
}

fn timeout(text: &str) -> Result<Duration> {
    let wrong = || {
        invalid(&format!(
            "{NODE_TIMEOUT} is milliseconds or seconds, 1ms to {NODE_TIMEOUT_MAX:?}, as in {NODE_TIMEOUT}=500ms"
        ))
    };
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').ok_or_else(wrong)?, 1000),
    };
    let millis = number.parse::<u64>().ok();
    let timeout = millis.and_then(|millis| millis.checked_mul(unit));
    timeout
        .map(Duration::from_millis)
        .filter(|timeout| !timeout.is_zero() && *timeout <= NODE_TIMEOUT_MAX)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        Config::of(StoreUrl::parse(text)?)
    }

    #[test]
    fn nodes_have_one_order_whatever_the_url_has() {
        let one = read("redlock://b:1,a:2,a:1").unwrap();
        let other = read("redlock://a:1,b:1,a:2").unwrap();
        assert_eq!(one.nodes, other.nodes);
        assert_eq!(one.node_timeout, NODE_TIMEOUT_DEFAULT);
        let quick = read("redlock://a,b,c?node-timeout=50ms").unwrap();
        assert_eq!(quick.node_timeout, Duration::from_millis(50));
    }

    #[test]
    fn what_can_not_be_right_is_said() {
        for (url, says) in [
            ("redlock://a,b", "3 to 9 nodes"),
            ("redlock://a,b,c,d,e,f,g,h,i,j", "3 to 9 nodes"),
            ("redlock://a,b,a:6379", "a:6379 is named twice"),
            ("redlock://a,b,c?handover=always", "can't do handover"),
            ("redlock://a,b,c?min-replicas=1", "can't do min-replicas"),
            (
                "redlock://a,b,c?node-timout=1s",
                "did you mean \"node-timeout\"",
            ),
            ("redlock://a,b,c?node-timeout=1", "node-timeout is"),
            ("redlock://a,b,c?node-timeout=9s", "node-timeout is"),
            ("redlock://a,b,c?ca-file=/x", "is for TLS alone"),
            ("redlock://a,b,c/x", "number of a database"),
        ] {
            let error = read(url).err().unwrap();
            assert!(error.to_string().contains(says), "{url}: {error}");
        }
    }
}
