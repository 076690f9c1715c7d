//! Consul, one server or several.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::tls::TlsFiles;
use super::{Failure, Package, Port, Result, Server};

/// Where it comes from: the last Debian that has it.
const PACKAGE: Package = Package {
    suite: "bullseye",
    name: "consul",
    program: "usr/bin/consul",
    variable: "LEASEHOLD_TEST_CONSUL",
};

/// What all servers are set to: connections for a whole test suite from one host.
const SETTINGS: &str = r#""limits":{"http_max_conns_per_client":4096},"disable_update_check":true"#;
/// Has a server that leads alone begin at once, and the others of a dead leader notice that within a second or two; on a
/// busy machine they also take a slow one for dead.
const QUICK: &str = r#""performance":{"raft_multiplier":1}"#;

/// A cluster of one's own.
#[derive(Debug)]
pub struct Consul {
    settings: String,
    tls: Option<TlsFiles>,
    token: Option<String>,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    http: Port,
    https: Port,
    rpc: Port,
    serf: Port,
    /// Where servers of other datacenters reach it.
    wan: Port,
    data: TempDir,
    server: Server,
}

/// Where servers keep their data: in memory, as no test cuts the machine's power, and three that write to one disk wait
/// for one another.
const MEMORY: &str = "/dev/shm";

impl Consul {
    /// Where it comes from.
    #[must_use]
    pub fn package() -> Package {
        PACKAGE
    }

    /// Starts a cluster of `members`, and waits until every one of them answers.
    ///
    /// # Errors
    /// When it can't be had or doesn't start, with the log.
    pub fn start(members: usize) -> Result<Self> {
        Self::start_with(members, "", None)
    }

    /// As [`start`](Self::start), each with more settings, as they stand between the braces of a configuration file,
    /// and with TLS besides.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(members: usize, settings: &str, tls: Option<&TlsFiles>) -> Result<Self> {
        Self::launch_all(members, settings, tls, None)
    }

    fn launch_all(
        members: usize,
        settings: &str,
        tls: Option<&TlsFiles>,
        token: Option<&str>,
    ) -> Result<Self> {
        let member = |_| -> Result<Member> {
            Ok(Member {
                http: Port::reserve()?,
                https: Port::reserve()?,
                rpc: Port::reserve()?,
                serf: Port::reserve()?,
                wan: Port::reserve()?,
                data: tempfile::Builder::new()
                    .prefix("leasehold-consul-")
                    .tempdir_in(MEMORY)
                    .map_err(Failure::of(MEMORY))?,
                server: Server::new()?,
            })
        };
        let mut consul = Self {
            settings: settings.to_owned(),
            tls: tls.cloned(),
            token: token.map(str::to_owned),
            members: (0..members).map(member).collect::<Result<_>>()?,
        };
        for at in 0..members {
            consul.launch(at)?;
        }
        for at in 0..members {
            consul.wait(at)?;
        }
        Ok(consul)
    }

    /// Starts one that lets nobody in without a token; `token` is the one that may do everything.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_guarded(token: &str) -> Result<Self> {
        let settings = format!(
            r#""acl":{{"enabled":true,"default_policy":"deny","tokens":{{"master":"{token}","agent":"{token}"}}}}"#
        );
        Self::launch_all(1, &settings, None, Some(token))
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
        self.members[at].http.address()
    }

    /// The URL of the whole cluster.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .members
            .iter()
            .map(|member| member.http.address().to_string())
            .collect();
        format!("consul://{}", hosts.join(","))
    }

    /// The URL for TLS of a cluster that has that.
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("consuls://{}", self.members[0].https.address())
    }

    /// Its own command, `consul`, for a member.
    ///
    /// # Errors
    /// When it can't be had.
    pub fn control(&self, at: usize) -> Result<Command> {
        let mut command = PACKAGE.command()?;
        command.env("CONSUL_HTTP_ADDR", self.address(at).to_string());
        if let Some(token) = &self.token {
            command.env("CONSUL_HTTP_TOKEN", token);
        }
        Ok(command)
    }

    /// Asks member `at` over HTTP and answers the reply's body.
    ///
    /// # Errors
    /// When there is no answer, or it isn't a success.
    pub fn call(&self, at: usize, method: &str, path: &str, body: &str) -> Result<String> {
        let reply = call(self.address(at), self.token.as_deref(), method, path, body)?;
        match reply.split_once("\r\n\r\n") {
            Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
            _ => Err(Failure::new(reply)),
        }
    }

    /// Makes the cluster known to another, of another datacenter.
    ///
    /// # Errors
    /// When they don't reach each other.
    pub fn join(&self, other: &Self) -> Result<()> {
        let address = other.members[0].wan.address().to_string();
        let mut command = self.control(0)?;
        let made = command.args(["join", "-wan", &address]).output()?;
        if made.status.success() {
            return Ok(());
        }
        Err(Failure::new(String::from_utf8_lossy(&made.stderr)))
    }

    /// How many members it has.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The member that leads, as the first one sees it.
    ///
    /// # Errors
    /// When there is none, or no answer.
    pub fn leader(&self) -> Result<usize> {
        let leader = self.call(0, "GET", "/v1/status/leader", "")?;
        let leads = |member: &Member| leader.contains(&member.rpc.address().to_string());
        self.members
            .iter()
            .position(leads)
            .ok_or_else(|| Failure::new("no member leads"))
    }

    /// The server of member `at`, to freeze or to end.
    pub fn member(&mut self, at: usize) -> &mut Server {
        &mut self.members[at].server
    }

    fn launch(&mut self, at: usize) -> Result<()> {
        let all = self.members.len();
        let join: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("\"{}\"", member.serf.address()))
            .collect();
        let member = &self.members[at];
        let https = match &self.tls {
            Some(_) => i32::from(member.https.number()),
            None => -1,
        };
        let mut config = format!(
            r#"{{{SETTINGS},"node_name":"member{at}","server":true,"bootstrap_expect":{all},"bind_addr":"127.0.0.1","client_addr":"127.0.0.1","ports":{{"http":{},"https":{https},"dns":-1,"grpc":-1,"server":{},"serf_lan":{},"serf_wan":{}}},"retry_join":[{}],"retry_interval":"1s""#,
            member.http.number(),
            member.rpc.number(),
            member.serf.number(),
            member.wan.number(),
            join.join(",")
        );
        if let Some(tls) = &self.tls {
            config += &format!(
                r#","ca_file":"{}","cert_file":"{}","key_file":"{}","verify_incoming_https":true"#,
                tls.ca.display(),
                tls.cert.display(),
                tls.key.display()
            );
        }
        let quick = if all == 1 { QUICK } else { "" };
        for settings in [quick, &self.settings] {
            if !settings.is_empty() {
                config += ",";
                config += settings;
            }
        }
        config += "}";
        let folder = member.server.folder().to_path_buf();
        let file = folder.join("consul.json");
        std::fs::write(&file, config)?;
        let mut command = PACKAGE.command()?;
        command
            .args(["agent", "-log-level", "warn", "-data-dir"])
            .arg(member.data.path())
            .arg("-config-file")
            .arg(file);
        self.members[at].server.launch(&command)
    }

    /// Waits until a member answers and knows a leader.
    fn wait(&mut self, at: usize) -> Result<()> {
        let address = self.address(at);
        let token = self.token.clone();
        self.members[at]
            .server
            .wait_until(|| is_registered(address, token.as_deref(), at))
    }

    /// Takes away what a stopped server kept, for a new cluster in the place of the old one.
    ///
    /// # Errors
    /// When its files can't be removed.
    pub fn forget(&self, at: usize) -> Result<()> {
        let data = self.members[at].data.path();
        std::fs::remove_dir_all(data)?;
        Ok(std::fs::create_dir(data)?)
    }

    /// Replaces what the cluster keeps by a snapshot.
    ///
    /// # Errors
    /// When the snapshot can't be restored.
    pub fn restore(&self, snapshot: &Path) -> Result<()> {
        let mut command = self.control(0)?;
        let made = command
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .output()?;
        if made.status.success() {
            return Ok(());
        }
        Err(Failure::new(String::from_utf8_lossy(&made.stderr)))
    }
}

/// Whether a member knows a leader, who has taken it into the catalog: without that it can make no session.
fn is_registered(address: SocketAddr, token: Option<&str>, at: usize) -> bool {
    let path = format!("/v1/catalog/node/member{at}");
    let reply = call(address, token, "GET", &path, "");
    reply.is_ok_and(|reply| reply.contains(" 200 ") && reply.contains("\"consul\""))
}

/// One request over a connection of its own; the whole reply.
fn call(
    address: SocketAddr,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let token = token.map_or(String::new(), |token| {
        format!("X-Consul-Token: {token}\r\n")
    });
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\n{token}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_server_it_says() {
        let consul = Consul::start(1).unwrap();
        let reply = consul.call(0, "GET", "/v1/agent/self", "").unwrap();
        assert!(reply.contains("\"Version\":\"1.8.7"), "{reply}");
    }

    #[test]
    fn a_cluster_goes_on_without_one_member_and_not_without_two() {
        let mut consul = Consul::start_with(3, QUICK, None).unwrap();
        let write = |consul: &Consul, at| consul.call(at, "PUT", "/v1/kv/x", "1");
        let leader = consul.leader().unwrap();
        consul.member(leader).kill().unwrap();
        let (one, two) = ((leader + 1) % 3, (leader + 2) % 3);
        let goes_on = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            write(&consul, one).is_ok()
        });
        assert!(goes_on);
        consul.member(two).freeze().unwrap();
        assert!(write(&consul, one).is_err());
        consul.member(two).thaw().unwrap();
        consul.start_again(leader).unwrap();
    }
}
