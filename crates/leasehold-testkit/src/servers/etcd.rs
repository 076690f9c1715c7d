//! etcd, one member or several.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Failure, Package, Port, Result, Server};

/// In which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdEdition {
    /// 3.4, in which a stalled old leader goes on answering keep-alives.
    Etcd34,
    /// 3.5.
    Etcd35,
}

impl EtcdEdition {
    /// Every edition.
    pub const ALL: [Self; 2] = [Self::Etcd34, Self::Etcd35];

    /// Its name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd34 => "etcd34",
            Self::Etcd35 => "etcd35",
        }
    }

    /// Where its command `etcdctl` comes from.
    #[must_use]
    pub fn control(self) -> Package {
        Package {
            name: "etcd-client",
            program: "usr/bin/etcdctl",
            variable: "LEASEHOLD_TEST_ETCDCTL",
            ..self.package()
        }
    }

    /// Where it comes from.
    #[must_use]
    pub fn package(self) -> Package {
        Package {
            suite: match self {
                Self::Etcd34 => "bookworm",
                Self::Etcd35 => "trixie",
            },
            name: "etcd-server",
            program: "usr/bin/etcd",
            variable: "LEASEHOLD_TEST_ETCD",
        }
    }
}

/// A cluster of one's own.
#[derive(Debug)]
pub struct Etcd {
    edition: EtcdEdition,
    args: Vec<String>,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    client: Port,
    peer: Port,
    /// Where it says how it is, without TLS.
    metrics: Port,
    server: Server,
}

impl Etcd {
    /// Starts a cluster of `members`, and waits until every one of them answers.
    ///
    /// # Errors
    /// When it can't be had or doesn't start, with the log.
    pub fn start(edition: EtcdEdition, members: usize) -> Result<Self> {
        Self::start_with(edition, members, &[])
    }

    /// As [`start`](Self::start), each with more arguments, for example `--heartbeat-interval 50`. With `--cert-file`
    /// clients come by TLS.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(edition: EtcdEdition, members: usize, args: &[&str]) -> Result<Self> {
        let member = |_| -> Result<Member> {
            Ok(Member {
                client: Port::reserve()?,
                peer: Port::reserve()?,
                metrics: Port::reserve()?,
                server: Server::new()?,
            })
        };
        let mut etcd = Self {
            edition,
            args: args.iter().map(|arg| (*arg).into()).collect(),
            members: (0..members).map(member).collect::<Result<_>>()?,
        };
        // None answers before most of them run.
        for at in 0..members {
            etcd.launch(at)?;
        }
        for at in 0..members {
            etcd.wait(at)?;
        }
        Ok(etcd)
    }

    /// Starts member `at` again after it was killed or stopped, with what it kept.
    ///
    /// # Errors
    /// When it runs, doesn't start, or most of the others don't run.
    pub fn start_again(&mut self, at: usize) -> Result<()> {
        self.launch(at)?;
        self.wait(at)
    }

    /// Where clients reach member `at`.
    #[must_use]
    pub fn address(&self, at: usize) -> SocketAddr {
        self.members[at].client.address()
    }

    /// The URL of the whole cluster.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .members
            .iter()
            .map(|member| member.client.address().to_string())
            .collect();
        let scheme = if self.is_encrypted() { "etcds" } else { "etcd" };
        format!("{scheme}://{}", hosts.join(","))
    }

    /// `etcdctl` of the same edition, for the whole cluster.
    ///
    /// # Errors
    /// When it can't be had.
    pub fn control(&self) -> Result<Command> {
        let mut command = self.edition.control().command()?;
        let url = self.url();
        let (_, hosts) = url.split_once("://").unwrap_or(("", &url));
        command.env("ETCDCTL_API", "3").args(["--endpoints", hosts]);
        Ok(command)
    }

    /// What member `at` counts of itself; nothing where it gives no answer.
    #[must_use]
    pub fn metrics(&self, at: usize) -> String {
        get(self.members[at].metrics.address(), "/metrics").unwrap_or_default()
    }

    /// How many members it has.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Replaces what a stopped cluster of one member kept by a snapshot, as a new cluster, with more arguments for
    /// `etcdutl snapshot restore`; then start it again.
    ///
    /// # Errors
    /// When the snapshot can't be restored.
    pub fn restore(&mut self, snapshot: &Path, args: &[&str]) -> Result<()> {
        let data = self.members[0].server.folder().join("data");
        std::fs::remove_dir_all(&data)?;
        let peer = self.peer_url(0);
        let mut command = Package {
            program: "usr/bin/etcdutl",
            variable: "LEASEHOLD_TEST_ETCDUTL",
            ..EtcdEdition::Etcd35.package()
        }
        .command()?;
        command
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .args(["--name", &name(0), "--data-dir"])
            .arg(data)
            .args(["--initial-cluster", &format!("{}={peer}", name(0))])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster-token", "restored"])
            .args(args);
        let made = command.output()?;
        if made.status.success() {
            return Ok(());
        }
        Err(Failure::new(String::from_utf8_lossy(&made.stderr)))
    }

    /// The member that leads.
    ///
    /// # Errors
    /// When there is none, or no answer.
    pub fn leader(&self) -> Result<usize> {
        for at in 0..self.members.len() {
            // Its own figures say whether it leads.
            if self.metrics(at).contains("\netcd_server_is_leader 1\n") {
                return Ok(at);
            }
        }
        Err(Failure::new("no member leads"))
    }

    /// The server of member `at`, to freeze or to end.
    pub fn member(&mut self, at: usize) -> &mut Server {
        &mut self.members[at].server
    }

    fn launch(&mut self, at: usize) -> Result<()> {
        let cluster: Vec<String> = (0..self.members.len())
            .map(|other| format!("{}={}", name(other), self.peer_url(other)))
            .collect();
        let scheme = if self.is_encrypted() { "https" } else { "http" };
        let (client, peer) = (
            format!("{scheme}://{}", self.address(at)),
            self.peer_url(at),
        );
        let metrics = format!("http://{}", self.members[at].metrics.address());
        // A token of its own keeps a cluster apart from one that had the same ports before.
        let first = self.peer_url(0);
        let member = &mut self.members[at];
        let mut command = self.edition.package().command()?;
        command
            .args(["--name", &name(at), "--data-dir"])
            .arg(member.server.folder().join("data"))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-metrics-urls", &metrics])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(["--initial-cluster-token", &first])
            .args(&self.args);
        member.server.launch(&command)
    }

    fn wait(&mut self, at: usize) -> Result<()> {
        let address = self.members[at].metrics.address();
        self.members[at].server.wait_until(|| is_healthy(address))
    }

    fn is_encrypted(&self) -> bool {
        self.args.iter().any(|arg| arg == "--cert-file")
    }

    fn peer_url(&self, at: usize) -> String {
        format!("http://{}", self.members[at].peer.address())
    }
}

fn name(at: usize) -> String {
    format!("member{at}")
}

/// Whether a member answers and its cluster has a leader.
fn is_healthy(address: SocketAddr) -> bool {
    get(address, "/health").is_ok_and(|reply| reply.contains("\"health\":\"true\""))
}

/// Reads a page of a member's.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edition_is_the_server_it_says() {
        for edition in EtcdEdition::ALL {
            let etcd = Etcd::start(edition, 1).unwrap();
            let reply = get(etcd.address(0), "/version").unwrap();
            let version = match edition {
                EtcdEdition::Etcd34 => "\"etcdserver\":\"3.4.",
                EtcdEdition::Etcd35 => "\"etcdserver\":\"3.5.",
            };
            assert!(reply.contains(version), "{reply}");
        }
    }

    #[test]
    fn a_cluster_goes_on_without_one_member_and_not_without_two() {
        let mut etcd = Etcd::start(EtcdEdition::Etcd35, 3).unwrap();
        etcd.member(0).kill().unwrap();
        let others = etcd.members[1].metrics.address();
        // The killed one may have led.
        etcd.wait(1).unwrap();
        etcd.member(2).freeze().unwrap();
        assert!(!is_healthy(others));
        etcd.member(2).thaw().unwrap();
        etcd.start_again(0).unwrap();
        for at in 0..3 {
            etcd.wait(at).unwrap();
        }
    }
}
