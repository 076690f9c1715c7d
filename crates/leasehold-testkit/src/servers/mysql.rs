//! MariaDB and MySQL.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::packages::{folder, loader_command, run};
use super::{Failure, Package, Port, Result, Server, TlsFiles};

/// What servers of tests are set to: small, and on this host alone.
const SETTINGS: &[&str] = &[
    "bind-address=127.0.0.1",
    "innodb-buffer-pool-size=8M",
    // The system has only so much of it, and a server without any waits.
    "innodb-use-native-aio=OFF",
    "skip-log-bin",
    "user=root",
];
/// Where the packages have the texts and tables that a server needs.
const SHARE: &str = "usr/share/mysql";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MysqlEdition {
    /// MariaDB 10.11.
    MariaDb,
    /// MySQL 9.
    MySql,
}

impl MysqlEdition {
    /// Every edition.
    pub const ALL: [Self; 2] = [Self::MariaDb, Self::MySql];

    /// Its name in lower case, which is the scheme of its URLs, too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// A command that starts it; brings it on first use.
    ///
    /// # Errors
    /// When it can't be had, with what to do.
    pub fn command(self) -> Result<Command> {
        self.program(self.package().program)
    }

    fn package(self) -> Package {
        match self {
            Self::MariaDb => Package {
                suite: "bookworm",
                name: "mariadb-server-core",
                program: "usr/sbin/mariadbd",
                variable: "LEASEHOLD_TEST_MARIADB",
            },
            Self::MySql => Package {
                suite: "sid",
                name: "mysql-server-core",
                program: "usr/sbin/mysqld",
                variable: "LEASEHOLD_TEST_MYSQL",
            },
        }
    }

    /// The folder that the package is unpacked in; none where a variable names the server.
    fn root(self) -> Result<Option<PathBuf>> {
        let package = self.package();
        if std::env::var_os(package.variable).is_some() {
            return Ok(None);
        }
        let client = match self {
            Self::MariaDb => "mariadb-client-core",
            Self::MySql => "mysql-client-core",
        };
        let root = package.fetch(&[client])?;
        let root = root.canonicalize().map_err(Failure::of(root.display()))?;
        Ok(Some(root))
    }

    /// A program of the package. Where a variable names the server, its client is the one of this host.
    fn program(self, program: &str) -> Result<Command> {
        let Some(root) = self.root()? else {
            let named = std::env::var_os(self.package().variable).unwrap_or_default();
            let is_server = program == self.package().program;
            let client = Path::new(program).file_name().unwrap_or_default();
            return Ok(Command::new(if is_server { &named } else { client }));
        };
        loader_command(&root, program)
    }

    /// The server on a data folder.
    fn on(self, data: &Path) -> Result<Command> {
        let mut command = self.command()?;
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()));
        if let Some(root) = self.root()? {
            let share = root.join(SHARE);
            command.arg(format!("--lc-messages-dir={}", share.display()));
        }
        command.args(SETTINGS.iter().map(|setting| format!("--{setting}")));
        if self == Self::MySql {
            command.arg("--secure-file-priv=NULL");
        }
        Ok(command)
    }

    /// Puts an empty data folder at `data`.
    fn lay_out(self, data: &Path) -> Result<()> {
        if self.root()?.is_none() {
            return self.initialise(data);
        }
        let kept = self.kept()?;
        run(Command::new("cp")
            .args(["--recursive", "--reflink=auto", "--sparse=always"])
            .arg(&kept)
            .arg(data))
        .map(drop)
    }

    /// A data folder to be copied: to make one takes seconds.
    fn kept(self) -> Result<PathBuf> {
        let suite = folder().join(self.package().suite);
        let kept = suite.join(format!("{}-data", self.name()));
        if kept.exists() {
            return Ok(kept);
        }
        let lock = suite.join(format!("{}-data.lock", self.name()));
        let lock = File::create(&lock).map_err(Failure::of(lock.display()))?;
        lock.lock()
            .map_err(Failure::of("waiting for another who makes a data folder"))?;
        if kept.exists() {
            return Ok(kept);
        }
        let partial = suite.join(format!("{}-data.partial", self.name()));
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(Failure::of(partial.display()))?;
        }
        self.initialise(&partial)?;
        fs::rename(&partial, &kept).map_err(Failure::of(kept.display()))?;
        Ok(kept)
    }

    /// Has the server make its own tables.
    fn initialise(self, data: &Path) -> Result<()> {
        fs::create_dir_all(data).map_err(Failure::of(data.display()))?;
        let mut command = self.on(data)?;
        match self {
            Self::MySql => command.arg("--initialize-insecure"),
            Self::MariaDb => {
                // What the script that comes with it does.
                let share = match self.root()? {
                    Some(root) => root.join(SHARE),
                    None => Path::new("/").join(SHARE),
                };
                let mut text =
                    "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n".to_owned();
                for name in ["tables", "tables_data"] {
                    let file = share.join(format!("mysql_system_{name}.sql"));
                    text += &fs::read_to_string(&file).map_err(Failure::of(file.display()))?;
                }
                let file = data.with_extension("sql");
                fs::write(&file, text).map_err(Failure::of(file.display()))?;
                let input = File::open(&file).map_err(Failure::of(file.display()))?;
                command.arg("--bootstrap").stdin(Stdio::from(input))
            }
        };
        run(&mut command).map(drop)
    }
}

/// A server of one's own, on a free port and on a unix socket, with a user `root` on this host who needs no password. It
/// is killed when dropped.
#[derive(Debug)]
pub struct Mysql {
    edition: MysqlEdition,
    settings: Vec<String>,
    port: Port,
    server: Server,
}

impl Mysql {
    /// Starts an empty server.
    ///
    /// # Errors
    /// When it can't be had or doesn't start, with its log.
    pub fn start(edition: MysqlEdition) -> Result<Self> {
        Self::start_with(edition, &[], None)
    }

    /// As [`start`](Self::start), with more settings, each as `name=value`, and TLS that it has a certificate for.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        edition: MysqlEdition,
        settings: &[&str],
        tls: Option<&TlsFiles>,
    ) -> Result<Self> {
        let mut settings: Vec<String> = settings.iter().map(|word| (*word).to_owned()).collect();
        if let Some(tls) = tls {
            for (name, file) in [("ca", &tls.ca), ("cert", &tls.cert), ("key", &tls.key)] {
                settings.push(format!("ssl-{name}={}", file.display()));
            }
        }
        let mut mysql = Self {
            edition,
            settings,
            port: Port::reserve()?,
            server: Server::new()?,
        };
        edition.lay_out(&mysql.data())?;
        mysql.start_again()?;
        Ok(mysql)
    }

    /// Starts it again after it was ended: on the same port, with what it kept.
    ///
    /// # Errors
    /// When it runs, or doesn't start.
    pub fn start_again(&mut self) -> Result<()> {
        let mut command = self.edition.on(&self.data())?;
        command
            .arg(format!("--port={}", self.port.number()))
            .arg(format!("--socket={}", self.socket().display()))
            // Servers that share one clear away each other's files.
            .arg(format!("--tmpdir={}", self.server.folder().display()))
            .arg(format!("--pid-file={}", self.data().join("pid").display()));
        if self.edition == MysqlEdition::MySql {
            // On a small machine a commit is done sooner by who asked for it than by threads that hand it on.
            command.args(["--mysqlx=OFF", "--innodb-log-writer-threads=OFF"]);
        }
        command.args(self.settings.iter().map(|setting| format!("--{setting}")));
        self.server.launch(&command)?;
        let client = self.client()?;
        self.server.wait_until(|| {
            let mut client = copy(&client);
            let up = run(client.args(["-e", "SHOW GLOBAL STATUS LIKE 'Uptime'"]));
            // In the second that it started in nobody gets a lock.
            up.is_ok_and(|up| !up.trim_end().ends_with("\t0"))
        })
    }

    fn data(&self) -> PathBuf {
        self.server.folder().join("data")
    }

    /// Which server it is.
    #[must_use]
    pub fn edition(&self) -> MysqlEdition {
        self.edition
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://root@{}", self.edition.name(), self.address())
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The path of its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.server.folder().join("socket")
    }

    /// What statements answer: a line for each row, fields separated by tabs.
    ///
    /// # Errors
    /// When the server refuses one or gives no answer.
    pub fn query(&self, sql: &str) -> Result<String> {
        let answer = run(self.client()?.args(["-e", sql]))?;
        Ok(answer.trim_end().to_owned())
    }

    /// The server's own client, which reads statements from its standard input unless told otherwise.
    ///
    /// # Errors
    /// When it can't be had.
    pub fn client(&self) -> Result<Command> {
        let mut client = self.edition.program(match self.edition {
            MysqlEdition::MariaDb => "usr/bin/mariadb",
            MysqlEdition::MySql => "usr/bin/mysql",
        })?;
        client
            .args(["--no-defaults", "--batch", "--skip-column-names"])
            .args(["--unbuffered", "--user=root", "--protocol=socket"])
            .arg(format!("--socket={}", self.socket().display()));
        Ok(client)
    }
}

/// The same command once more.
fn copy(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => copy.env(name, value),
            None => copy.env_remove(name),
        };
    }
    copy
}

impl Deref for Mysql {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Mysql {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_tables_over_stop_and_kill() {
        for edition in MysqlEdition::ALL {
            let mut mysql = Mysql::start(edition).unwrap();
            let version = mysql.query("SELECT VERSION()").unwrap();
            let is_mariadb = version.contains("MariaDB");
            assert_eq!(is_mariadb, edition == MysqlEdition::MariaDb, "{version}");
            mysql
                .query("CREATE DATABASE d; CREATE TABLE d.t (n INT PRIMARY KEY); INSERT INTO d.t VALUES (1)")
                .unwrap();
            mysql.stop().unwrap();
            mysql.start_again().unwrap();
            mysql.query("INSERT INTO d.t VALUES (2)").unwrap();
            mysql.kill().unwrap();
            mysql.start_again().unwrap();
            assert_eq!(mysql.query("SELECT COUNT(*) FROM d.t").unwrap(), "2");
            mysql.freeze().unwrap();
            mysql.thaw().unwrap();
            assert_eq!(mysql.query("SELECT 1").unwrap(), "1");
        }
    }
}
