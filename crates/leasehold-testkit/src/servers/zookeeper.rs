//! ZooKeeper, one member or several.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::packages::loader_command;
use super::{Failure, Package, Port, Proxy, Result, Server, TlsFiles};

/// Java, which everything of ZooKeeper's runs on.
const JAVA: Package = Package {
    suite: "bookworm",
    name: "openjdk-17-jdk-headless",
    program: "usr/lib/jvm/java-17-openjdk-amd64/bin/java",
    variable: "LEASEHOLD_TEST_JAVA",
};
/// The server, and Curator, the client of other makes.
const LIBRARIES: [&str; 2] = ["libzookeeper-java", "libcurator-recipes-java"];
/// The folder that has them where Java was named by its variable.
const JARS: &str = "LEASEHOLD_TEST_JARS";

/// What every member runs with; what is given later in its file counts.
const SETTINGS: &str = "\
tickTime=200
initLimit=50
syncLimit=20
minSessionTimeout=1000
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
standaloneEnabled=true
";

/// The file with a server's certificate and key, in its data folder.
const KEY_STORE: &str = "server.pem";

/// An ensemble of one's own.
#[derive(Debug)]
pub struct ZooKeeper {
    settings: String,
    members: Vec<Member>,
    /// By follower and leader: what a follower reaches the leader through. Empty without.
    proxies: Vec<Vec<Proxy>>,
    tls: Option<TlsFiles>,
}

#[derive(Debug)]
struct Member {
    client: Port,
    /// Where clients come by TLS.
    secure: Port,
    quorum: Port,
    election: Port,
    server: Server,
}

impl ZooKeeper {
    /// Starts an ensemble of `members`, and waits until every one of them answers.
    ///
    /// # Errors
    /// When it can't be had or doesn't start, with the log.
    pub fn start(members: usize) -> Result<Self> {
        Self::start_with(members, &[], None)
    }

    /// As [`start`](Self::start), each with more settings, for example `tickTime=2000`, and with TLS for clients that
    /// show a certificate.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(members: usize, settings: &[&str], tls: Option<&TlsFiles>) -> Result<Self> {
        let mut zookeeper = Self::prepare(members, settings)?;
        zookeeper.tls = tls.cloned();
        zookeeper.launch_all()
    }

    /// As [`start_with`](Self::start_with), every follower with a [`link`](Self::link) to every leader.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_linked(members: usize, settings: &[&str]) -> Result<Self> {
        let mut zookeeper = Self::prepare(members, settings)?;
        for _ in 0..members {
            let quorums = zookeeper
                .members
                .iter()
                .map(|member| member.quorum.address());
            let proxies = quorums.map(Proxy::start).collect::<std::io::Result<_>>()?;
            zookeeper.proxies.push(proxies);
        }
        zookeeper.launch_all()
    }

    fn prepare(members: usize, settings: &[&str]) -> Result<Self> {
        let member = |_| -> Result<Member> {
            Ok(Member {
                client: Port::reserve()?,
                secure: Port::reserve()?,
                quorum: Port::reserve()?,
                election: Port::reserve()?,
                server: Server::new()?,
            })
        };
        Ok(Self {
            settings: settings.join("\n"),
            members: (0..members).map(member).collect::<Result<_>>()?,
            proxies: Vec::new(),
            tls: None,
        })
    }

    fn launch_all(mut self) -> Result<Self> {
        // None answers before most of them run.
        for at in 0..self.members.len() {
            self.launch(at)?;
        }
        for at in 0..self.members.len() {
            self.wait(at)?;
        }
        Ok(self)
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

    /// The URL of the whole ensemble.
    #[must_use]
    pub fn url(&self) -> String {
        let tls = self.tls.is_some();
        let hosts: Vec<String> = self
            .members
            .iter()
            .map(|member| if tls { &member.secure } else { &member.client })
            .map(|port| port.address().to_string())
            .collect();
        let scheme = if tls { "zookeepers" } else { "zookeeper" };
        format!("{scheme}://{}", hosts.join(","))
    }

    /// How many members it has.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// What `member` answers to a word for operators, for example `mntr`; nothing where it gives no answer.
    #[must_use]
    pub fn says(&self, at: usize, word: &str) -> String {
        ask(self.address(at), word).unwrap_or_default()
    }

    /// The member that leads.
    ///
    /// # Errors
    /// When there is none, or no answer.
    pub fn leader(&self) -> Result<usize> {
        (0..self.members.len())
            .find(|at| self.says(*at, "srvr").contains("Mode: leader"))
            .ok_or_else(|| Failure::new("no member leads"))
    }

    /// The server of member `at`, to freeze or to end.
    pub fn member(&mut self, at: usize) -> &mut Server {
        &mut self.members[at].server
    }

    /// What `follower` reaches `leader` through, in an ensemble that was started so.
    #[must_use]
    pub fn link(&self, follower: usize, leader: usize) -> &Proxy {
        &self.proxies[follower][leader]
    }

    /// A command that runs Java with ZooKeeper's and Curator's classes, and starts what is added to it.
    ///
    /// # Errors
    /// When it can't be had.
    pub fn java() -> Result<Command> {
        let (mut command, jars) = match std::env::var_os(JAVA.variable) {
            Some(java) => {
                let jars = std::env::var_os(JARS)
                    .ok_or_else(|| Failure::new(format!("{JARS} must name a folder")))?;
                (Command::new(java), PathBuf::from(jars))
            }
            None => {
                let root = JAVA.fetch(&LIBRARIES)?;
                (
                    loader_command(&root, JAVA.program)?,
                    root.join("usr/share/java"),
                )
            }
        };
        command
            // For a server of a test; starting fast is worth more than running fast.
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .args(["-classpath", &class_path(&jars)?]);
        Ok(command)
    }

    fn launch(&mut self, at: usize) -> Result<()> {
        let folder = self.members[at].server.folder().to_path_buf();
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), (at + 1).to_string())?;
        let settings = folder.join("zoo.cfg");
        fs::write(&settings, self.settings_of(at, &data))?;
        if let Some(tls) = &self.tls {
            // It takes both in one file.
            let both = [fs::read(&tls.key)?, fs::read(&tls.cert)?].concat();
            fs::write(data.join(KEY_STORE), both)?;
        }
        let mut command = Self::java()?;
        command
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(settings);
        self.members[at].server.launch(&command)
    }

    fn settings_of(&self, at: usize, data: &Path) -> String {
        let own = &self.members[at];
        let mut text = format!(
            "{SETTINGS}dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n",
            data.display(),
            own.client.number()
        );
        if self.members.len() > 1 {
            for (other, member) in self.members.iter().enumerate() {
                let quorum = match self.proxies.get(at) {
                    Some(proxies) if other != at => proxies[other].address().port(),
                    _ => member.quorum.number(),
                };
                let (number, election) = (other + 1, member.election.number());
                text += &format!("server.{number}=127.0.0.1:{quorum}:{election}\n");
            }
        }
        if let Some(tls) = &self.tls {
            text += &format!(
                "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\n\
                 ssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
                 ssl.clientAuth=need\nssl.hostnameVerification=false\n",
                own.secure.number(),
                data.join(KEY_STORE).display(),
                tls.ca.display()
            );
        }
        text + &self.settings + "\n"
    }

    fn wait(&mut self, at: usize) -> Result<()> {
        let address = self.address(at);
        // It opens this port after the other.
        let secure = self.members[at].secure.address();
        let is_plain = self.tls.is_none();
        self.members[at].server.wait_until(|| {
            ask(address, "srvr").is_ok_and(|reply| reply.contains("Mode: "))
                && (is_plain || TcpStream::connect(secure).is_ok())
        })
    }
}

/// ZooKeeper's jars and what they need.
fn class_path(jars: &Path) -> Result<String> {
    const WANTED: [&str; 9] = [
        "zookeeper",
        "curator-",
        "slf4j-api.",
        "slf4j-simple.",
        "commons-",
        "metrics-core.",
        "snappy-java.",
        "netty-",
        "guava.",
    ];
    let jars = jars.canonicalize().map_err(Failure::of(jars.display()))?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(&jars).map_err(Failure::of(jars.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // Every jar is there a second time, with its version.
        let parts = name.split('-').skip(1);
        let has_version = parts
            .filter_map(|part| part.chars().next())
            .any(|first| first.is_ascii_digit());
        let is_wanted = WANTED.iter().any(|wanted| name.starts_with(wanted));
        if is_wanted && !has_version && name.ends_with(".jar") {
            paths.push(jars.join(name).display().to_string());
        }
    }
    // The order of a class path counts, and that of a folder is none.
    paths.sort_unstable();
    Ok(paths.join(":"))
}

/// Sends one of the words of four letters; answers what comes.
fn ask(address: SocketAddr, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(word.as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ensemble_goes_on_without_one_member_and_not_without_two() {
        let mut zookeeper = ZooKeeper::start(3).unwrap();
        let leader = zookeeper.leader().unwrap();
        zookeeper.member(leader).kill().unwrap();
        let other = (leader + 1) % 3;
        zookeeper.wait(other).unwrap();
        zookeeper.member((leader + 2) % 3).kill().unwrap();
        let address = zookeeper.address(other);
        zookeeper.members[other]
            .server
            .wait_until(|| ask(address, "srvr").is_ok_and(|reply| !reply.contains("Mode: ")))
            .unwrap();
        zookeeper.start_again(leader).unwrap();
    }
}
