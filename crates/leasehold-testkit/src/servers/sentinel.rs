//! Redis Sentinel.

use std::net::SocketAddr;

use super::tls::TlsFiles;
use super::wire::says;
use super::{Failure, Port, Redis, RedisEdition, Result, Server};

/// How many replicas the master has.
const REPLICAS: usize = 2;
/// How many sentinels watch over them.
const SENTINELS: usize = 3;
/// The name they know the master by.
const NAME: &str = "mymaster";

/// A group of one's own: a master, two replicas, and three sentinels over them.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
    /// The servers' ports for TLS.
    tls: Vec<Port>,
}

#[derive(Debug)]
struct Sentinel {
    port: Port,
    tls: Option<Port>,
    server: Server,
}

impl RedisSentinel {
    /// Starts it, and waits until the sentinels know each other and the replicas.
    ///
    /// # Errors
    /// When it can't be had or doesn't come together, with a log.
    pub fn start(edition: RedisEdition) -> Result<Self> {
        Self::start_with(edition, &[], &[], None)
    }

    /// As [`start`](Self::start), with more arguments for the servers, more lines for the sentinels, and TLS besides
    /// the plain ports.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        edition: RedisEdition,
        args: &[&str],
        lines: &[&str],
        tls: Option<&TlsFiles>,
    ) -> Result<Self> {
        let mut group = Self {
            servers: Vec::new(),
            sentinels: Vec::new(),
            tls: Vec::new(),
        };
        let mut master = None;
        for _ in 0..=REPLICAS {
            let port = group.start_server(edition, args, master, tls)?;
            master.get_or_insert(port);
        }
        for at in 0..SENTINELS {
            let sentinel = Sentinel::start(edition, master.unwrap_or_default(), lines, tls)
                .map_err(Failure::of(format_args!("sentinel {at}")))?;
            group.sentinels.push(sentinel);
        }
        for at in 0..SENTINELS {
            group.wait_for_acquaintance(at)?;
        }
        Ok(group)
    }

    /// Starts one more server, a replica unless it is the first; answers the port that its replicas use.
    fn start_server(
        &mut self,
        edition: RedisEdition,
        args: &[&str],
        master: Option<u16>,
        tls: Option<&TlsFiles>,
    ) -> Result<u16> {
        let mut all: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        all.extend(["--repl-diskless-sync-delay", "0"].map(str::to_owned));
        let mut replication_port = None;
        if let Some(tls) = tls {
            let port = Port::reserve()?;
            for (name, value) in tls.settings(port.number()) {
                all.extend([format!("--{name}"), value]);
            }
            replication_port = Some(port.number());
            self.tls.push(port);
        }
        if let Some(master) = master {
            all.extend(["--replicaof".into(), "127.0.0.1".into(), master.to_string()]);
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let mut redis = Redis::start_with(edition, &all)?;
        let address = redis.address();
        if master.is_some() {
            redis.wait_until(|| says(address, "INFO replication", &["master_link_status:up\r"]))?;
        }
        self.servers.push(redis);
        Ok(replication_port.unwrap_or(address.port()))
    }

    fn wait_for_acquaintance(&mut self, at: usize) -> Result<()> {
        let sentinel = &mut self.sentinels[at];
        let address = sentinel.port.address();
        let known = format!("slaves={REPLICAS},sentinels={SENTINELS}");
        sentinel
            .server
            .wait_until(|| says(address, "INFO sentinel", &["status=ok", &known]))
    }

    /// The name the sentinels know the master by.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// The URL, with every sentinel.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = (0..SENTINELS)
            .map(|at| self.sentinel_address(at).to_string())
            .collect();
        format!("redis+sentinel://{}/0?master={NAME}", hosts.join(","))
    }

    /// The URL for TLS, where it has that.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        let ports: Option<Vec<String>> = self
            .sentinels
            .iter()
            .map(|sentinel| Some(format!("127.0.0.1:{}", sentinel.tls.as_ref()?.number())))
            .collect();
        Some(format!(
            "rediss+sentinel://{}/0?master={NAME}",
            ports?.join(",")
        ))
    }

    /// Where clients reach sentinel `at`.
    #[must_use]
    pub fn sentinel_address(&self, at: usize) -> SocketAddr {
        self.sentinels[at].port.address()
    }

    /// The process of sentinel `at`, to freeze or to end.
    pub fn sentinel(&mut self, at: usize) -> &mut Server {
        &mut self.sentinels[at].server
    }

    /// Server `at`: the master of the beginning is 0, the replicas follow.
    pub fn server(&mut self, at: usize) -> &mut Redis {
        &mut self.servers[at]
    }

    /// Where server `at` is reached.
    #[must_use]
    pub fn address(&self, at: usize) -> SocketAddr {
        self.servers[at].address()
    }

    /// How many servers it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.servers.len()
    }
}

impl Sentinel {
    fn start(
        edition: RedisEdition,
        master: u16,
        lines: &[&str],
        tls: Option<&TlsFiles>,
    ) -> Result<Self> {
        let port = Port::reserve()?;
        let tls_port = tls.map(|_| Port::reserve()).transpose()?;
        let mut server = Server::new()?;
        let mut text = format!(
            "port {}\nbind 127.0.0.1\nprotected-mode no\ndir {}\n\
             sentinel monitor {NAME} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {NAME} 1000\n\
             sentinel failover-timeout {NAME} 5000\n",
            port.number(),
            server.folder().display(),
        );
        if let (Some(tls), Some(port)) = (tls, &tls_port) {
            for (name, value) in tls.settings(port.number()) {
                text += &format!("{name} {value}\n");
            }
        }
        for line in lines {
            text += line;
            text.push('\n');
        }
        // The sentinel writes into it what it learns.
        let file = server.folder().join("sentinel.conf");
        std::fs::write(&file, text).map_err(Failure::of(file.display()))?;
        let mut command = edition.command()?;
        command.arg(&file).arg("--sentinel");
        server.launch(&command)?;
        let address = port.address();
        server.wait_until(|| std::net::TcpStream::connect(address).is_ok())?;
        Ok(Self {
            port,
            tls: tls_port,
            server,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::ask;
    use super::*;

    #[test]
    fn the_sentinels_make_another_master_on_every_edition() {
        for edition in RedisEdition::ALL {
            let mut group = RedisSentinel::start(edition).unwrap();
            let sentinel = group.sentinel_address(0);
            ask(sentinel, &format!("SENTINEL FAILOVER {NAME}")).unwrap();
            let old = group.address(0);
            group
                .server(0)
                .wait_until(|| says(old, "INFO replication", &["role:slave"]))
                .unwrap();
            assert!((1..group.size()).any(|at| says(
                group.address(at),
                "INFO replication",
                &["role:master"]
            )));
        }
    }
}
