//! Redis Cluster.

use std::net::SocketAddr;

use super::tls::TlsFiles;
use super::wire::{ask, says};
use super::{Failure, Port, Redis, RedisEdition, Result};

/// How many masters, each with one replica.
const MASTERS: usize = 3;

/// A cluster of one's own: three masters, then a replica of each.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    redis: Redis,
    tls: Option<Port>,
    /// Where the nodes talk to each other.
    bus: Port,
}

impl RedisCluster {
    /// Starts it, and waits until every slot is served and every replica follows its master.
    ///
    /// # Errors
    /// When it can't be had or doesn't come together, with a log.
    pub fn start(edition: RedisEdition) -> Result<Self> {
        Self::start_with(edition, &[], None)
    }

    /// As [`start`](Self::start), each node with more arguments, and with TLS besides.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        edition: RedisEdition,
        args: &[&str],
        tls: Option<&TlsFiles>,
    ) -> Result<Self> {
        let node = |_| Node::start(edition, args, tls);
        let nodes: Vec<Node> = (0..MASTERS * 2).map(node).collect::<Result<_>>()?;
        let mut cluster = Self { nodes };
        cluster.join().map_err(Failure::of("forming the cluster"))?;
        Ok(cluster)
    }

    /// The slots come first, then the acquaintance, then the roles.
    fn join(&mut self) -> Result<()> {
        let all = self.nodes.len();
        for at in 0..all {
            let address = self.address(at);
            if at < MASTERS {
                let slot = |at| 16_384 * at / MASTERS;
                let (first, last) = (slot(at), slot(at + 1) - 1);
                ask(address, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            }
            ask(address, &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1))?;
            let node = &self.nodes[at];
            let bus = node.bus.number();
            // With TLS among themselves they know each other by the port for that.
            let port = node.tls.as_ref().map_or(address.port(), Port::number);
            ask(
                self.address(0),
                &format!("CLUSTER MEET 127.0.0.1 {port} {bus}"),
            )?;
        }
        let known = format!("cluster_known_nodes:{all}\r");
        for at in 0..all {
            self.wait(at, "CLUSTER INFO", &[&known])?;
        }
        for at in MASTERS..all {
            let master = ask(self.address(at - MASTERS), "CLUSTER MYID")?;
            // A node may hear of the others' slots later than of the others.
            self.wait(at, &format!("CLUSTER REPLICATE {master}"), &["OK"])?;
        }
        for at in 0..all {
            self.wait(at, "CLUSTER INFO", &["cluster_state:ok\r"])?;
        }
        for at in MASTERS..all {
            self.wait(at, "INFO replication", &["master_link_status:up\r"])?;
        }
        for at in 0..MASTERS {
            self.wait(at, "INFO replication", &["connected_slaves:1\r"])?;
        }
        Ok(())
    }

    fn wait(&mut self, at: usize, words: &str, texts: &[&str]) -> Result<()> {
        let address = self.address(at);
        self.nodes[at]
            .redis
            .wait_until(|| says(address, words, texts))
    }

    /// How many nodes it has; the masters of the beginning come first, then the replica of each.
    #[must_use]
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// The server of node `at`, to freeze or to end.
    pub fn node(&mut self, at: usize) -> &mut Redis {
        &mut self.nodes[at].redis
    }

    /// Where clients reach node `at`.
    #[must_use]
    pub fn address(&self, at: usize) -> SocketAddr {
        self.nodes[at].redis.address()
    }

    /// The URL, with two nodes for a client to begin with.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+cluster://{},{}", self.address(0), self.address(1))
    }

    /// The URL for TLS, where it has that.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        let port = self.nodes[0].tls.as_ref()?.number();
        Some(format!("rediss+cluster://127.0.0.1:{port}"))
    }
}

impl Node {
    fn start(edition: RedisEdition, args: &[&str], tls: Option<&TlsFiles>) -> Result<Self> {
        let bus = Port::reserve()?;
        let tls_port = tls.map(|_| Port::reserve()).transpose()?;
        let bus_number = bus.number().to_string();
        let mut all: Vec<String> = [
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus_number,
            "--cluster-node-timeout",
            "2000",
            "--repl-diskless-sync-delay",
            "0",
        ]
        .map(str::to_owned)
        .to_vec();
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        if let (Some(tls), Some(port)) = (tls, &tls_port) {
            for (name, value) in tls.settings(port.number()) {
                all.extend([format!("--{name}"), value]);
            }
            all.extend(["--tls-cluster", "yes"].map(str::to_owned));
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Ok(Self {
            redis: Redis::start_with(edition, &all)?,
            tls: tls_port,
            bus,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_served_on_every_edition_and_a_replica_can_take_over() {
        // Redis 6.2 can't be told the port of its bus.
        let editions = RedisEdition::ALL.into_iter();
        for edition in editions.filter(|edition| *edition != RedisEdition::Redis6) {
            let cluster = RedisCluster::start(edition).unwrap();
            for at in 0..cluster.size() {
                assert!(says(
                    cluster.address(at),
                    "CLUSTER INFO",
                    &["cluster_slots_ok:16384"]
                ));
            }
            // A replica that isn't level yet gives a failover up after five seconds, and must be asked again.
            let replica = cluster.address(MASTERS);
            let took_over = (0..10).any(|_| {
                ask(replica, "CLUSTER FAILOVER").unwrap();
                (0..60).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    says(replica, "INFO replication", &["role:master"])
                })
            });
            assert!(took_over, "{edition:?}");
        }
    }
}
