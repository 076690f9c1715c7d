//! Several Redis servers that know nothing of each other.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Redis, RedisEdition, Result, ServerClock};

/// Independent nodes, on which locks are decided by majority.
#[derive(Debug)]
pub struct RedisNodes {
    nodes: Vec<Redis>,
}

impl RedisNodes {
    /// Starts `count` of them.
    ///
    /// # Errors
    /// When they can't be had or don't start, with a log.
    pub fn start(edition: RedisEdition, count: usize) -> Result<Self> {
        Self::start_with(edition, count, &[])
    }

    /// As [`start`](Self::start), each with more arguments.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(edition: RedisEdition, count: usize, args: &[&str]) -> Result<Self> {
        let nodes = (0..count).map(|_| Redis::start_with(edition, args));
        Ok(Self {
            nodes: nodes.collect::<Result<_>>()?,
        })
    }

    /// As [`start`](Self::start), the first one with clocks of its own.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(edition: RedisEdition, count: usize, clock: &Arc<ServerClock>) -> Result<Self> {
        let first = std::iter::once_with(|| Redis::start_at(edition, clock));
        let others = (1..count).map(|_| Redis::start(edition));
        Ok(Self {
            nodes: first.chain(others).collect::<Result<_>>()?,
        })
    }

    /// How many there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// The server of node `at`, to freeze, to end or to start again.
    pub fn node(&mut self, at: usize) -> &mut Redis {
        &mut self.nodes[at]
    }

    /// Where clients reach node `at`.
    #[must_use]
    pub fn address(&self, at: usize) -> SocketAddr {
        self.nodes[at].address()
    }

    /// The URL of all of them.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| node.address().to_string())
            .collect();
        format!("redlock://{}", nodes.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::says;
    use super::*;

    #[test]
    fn every_node_is_a_master_of_its_own() {
        let nodes = RedisNodes::start(RedisEdition::Redis7, 3).unwrap();
        for at in 0..nodes.size() {
            let alone = ["role:master", "connected_slaves:0"];
            assert!(says(nodes.address(at), "INFO replication", &alone));
        }
        assert_eq!(nodes.url().matches(':').count(), 4);
    }
}
