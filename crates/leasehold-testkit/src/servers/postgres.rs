//! PostgreSQL.

mod standby;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::packages::{loader_command, run};
use super::{Failure, Package, Port, Result, Server, TlsFiles};
use crate::freezing;

const PACKAGE: Package = Package {
    suite: "bookworm",
    name: "postgresql-15",
    program: "usr/lib/postgresql/15/bin/postgres",
    variable: "LEASEHOLD_TEST_POSTGRES",
};
/// The last one whose sessions don't end when they are idle.
const OLD: Package = Package {
    suite: "bullseye",
    name: "postgresql-13",
    program: "usr/lib/postgresql/13/bin/postgres",
    variable: "LEASEHOLD_TEST_POSTGRES13",
};
/// Whom servers run as that refuse to run as root: nobody.
const NOBODY: u32 = 65_534;
/// What servers of tests are set to.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
unix_socket_directories = '.'
shared_buffers = 16MB
max_wal_size = 64MB
autovacuum = off
log_min_messages = warning
";

/// A server of one's own, on a free port and on a unix socket, with a user `postgres` who needs no password and a
/// database `locks`. It is ended when dropped.
#[derive(Debug)]
pub struct Postgres {
    package: Package,
    port: Port,
    server: Server,
}

impl Postgres {
    /// The package that it comes from.
    #[must_use]
    pub fn package() -> Package {
        PACKAGE
    }

    /// Starts a server with an empty database.
    ///
    /// # Errors
    /// When it can't be had or doesn't start, with its log.
    pub fn start() -> Result<Self> {
        Self::start_with(&[], None)
    }

    /// As [`start`](Self::start), with more settings, each as `name=value`, and TLS that it has a certificate for.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(settings: &[&str], tls: Option<&TlsFiles>) -> Result<Self> {
        Self::start_package(PACKAGE, settings, tls)
    }

    /// As [`start`](Self::start), of version 13.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_old() -> Result<Self> {
        Self::start_package(OLD, &[], None)
    }

    fn start_package(package: Package, settings: &[&str], tls: Option<&TlsFiles>) -> Result<Self> {
        let mut postgres = Self {
            package,
            port: Port::reserve()?,
            server: Server::new()?,
        };
        postgres.prepare(settings, tls)?;
        postgres.start_again()?;
        postgres.query_in("postgres", "CREATE DATABASE locks")?;
        Ok(postgres)
    }

    fn prepare(&self, settings: &[&str], tls: Option<&TlsFiles>) -> Result<()> {
        let folder = self.server.folder();
        give(folder)?;
        make_tree(folder, &self.package)?;
        let data = self.data();
        let mut init = as_nobody(&tree_command(folder, &self.package, "initdb")?);
        run(init
            .arg("--pgdata")
            .arg(&data)
            .args(["--username=postgres", "--auth=trust", "--no-sync"])
            .args(["--encoding=UTF8", "--locale=C"])
            .current_dir(folder))?;
        let mut text = fs::read_to_string(data.join("postgresql.conf"))? + SETTINGS;
        if let Some(tls) = tls {
            for (file, name) in [(&tls.cert, "server.crt"), (&tls.key, "server.key")] {
                let copy = data.join(name);
                fs::copy(file, &copy).map_err(Failure::of(file.display()))?;
                fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
                give(&copy)?;
            }
            text += "ssl = on\n";
        }
        for setting in settings {
            text += &format!("{setting}\n");
        }
        fs::write(data.join("postgresql.conf"), text)?;
        Ok(())
    }

    /// Starts it again after it was ended: on the same port, with what it kept.
    ///
    /// # Errors
    /// When it runs, or doesn't start.
    pub fn start_again(&mut self) -> Result<()> {
        let mut command = tree_command(self.server.folder(), &self.package, "postgres")?;
        command
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.number().to_string()]);
        self.server.launch(&as_nobody(&command))?;
        let ready = self.psql("postgres")?;
        self.server.wait_until(|| {
            let mut psql = Command::new(ready.get_program());
            psql.args(ready.get_args()).args(["-c", "SELECT 1"]);
            run(&mut psql).is_ok()
        })
    }

    fn data(&self) -> PathBuf {
        self.server.folder().join("data")
    }

    /// The URL of its database `locks`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/locks", self.address())
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The folder of its unix socket.
    #[must_use]
    pub fn socket_folder(&self) -> PathBuf {
        self.data()
    }

    /// What a statement answers in the database `locks`: a line for each row, fields separated by `|`.
    ///
    /// # Errors
    /// When the server refuses it or gives no answer.
    pub fn query(&self, sql: &str) -> Result<String> {
        self.query_in("locks", sql)
    }

    fn query_in(&self, database: &str, sql: &str) -> Result<String> {
        let answer = run(self.psql(database)?.args(["-c", sql]))?;
        Ok(answer.trim_end().to_owned())
    }

    /// A psql in a database, which reads statements from its standard input unless told otherwise.
    ///
    /// # Errors
    /// When it can't be had.
    pub fn psql(&self, database: &str) -> Result<Command> {
        let mut psql = program_command(&PACKAGE, "psql")?;
        psql.args(["--no-psqlrc", "--tuples-only", "--no-align", "--quiet"])
            .args(["-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", "127.0.0.1"])
            .args(["-p", &self.port.number().to_string(), "-d", database]);
        Ok(psql)
    }

    /// Ends it in good order, with its clients' sessions.
    ///
    /// # Errors
    /// When it doesn't run or doesn't end.
    pub fn stop(&mut self) -> Result<()> {
        self.server.stop_by(Signal::INT)
    }

    /// Ends it as a crash would: nothing is written that wasn't, and the next start recovers.
    ///
    /// # Errors
    /// When it doesn't run or doesn't end.
    pub fn crash(&mut self) -> Result<()> {
        self.server.stop_by(Signal::QUIT)
    }

    /// Kills the process of one session; the server ends all others and recovers.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn kill_backend(&self, pid: u32) -> Result<()> {
        kill_process(process(pid)?, Signal::KILL)
            .map_err(Failure::of("killing a process of the server"))
    }

    /// Stops all of its processes where they stand; connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When it doesn't run.
    pub fn freeze(&self) -> Result<()> {
        // Its main process first, so that it starts no others meanwhile.
        self.server.freeze()?;
        for pid in self.children()? {
            freezing::freeze(process(pid)?)
                .map_err(Failure::of("freezing a process of the server"))?;
        }
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it doesn't run.
    pub fn thaw(&self) -> Result<()> {
        for pid in self.children()? {
            freezing::thaw(process(pid)?).map_err(Failure::of("letting the server go on"))?;
        }
        self.server.thaw()
    }

    fn children(&self) -> Result<Vec<u32>> {
        let main = self.server.process_id();
        let main = main.ok_or_else(|| Failure::new("the server doesn't run"))?;
        let list = fs::read_to_string(format!("/proc/{main}/task/{main}/children"))?;
        Ok(list.split(' ').filter_map(|pid| pid.parse().ok()).collect())
    }
}

impl Drop for Postgres {
    /// Killed, its processes would leave a segment of shared memory behind.
    fn drop(&mut self) {
        if self.server.process_id().is_some() {
            let _ = self.thaw();
            let _ = self.crash();
        }
    }
}

fn process(id: u32) -> Result<Pid> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| Failure::new("no process has this id"))
}

/// Gives a file or a folder to whom the server runs as.
pub(super) fn give(path: &Path) -> Result<()> {
    if geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).map_err(Failure::of(path.display()))?;
    }
    Ok(())
}

/// The command, run by somebody else than root.
pub(super) fn as_nobody(command: &Command) -> Command {
    let mut other = Command::new("setpriv");
    // Who changes the user loses the signal that was asked for before.
    other.args(["--pdeathsig", "QUIT"]);
    if geteuid().is_root() {
        let nobody = NOBODY.to_string();
        other.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    }
    other
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// A command that starts a program that comes with the server's.
fn program_command(package: &Package, name: &str) -> Result<Command> {
    match std::env::var_os(package.variable) {
        Some(postgres) => Ok(Command::new(Path::new(&postgres).with_file_name(name))),
        None => {
            let program = Path::new(package.program).with_file_name(name);
            loader_command(&package.fetch(&[])?, &program.to_string_lossy())
        }
    }
}

/// Where the package has its programs and libraries.
fn home(package: &Package) -> &'static Path {
    Path::new(package.program)
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new(""))
}

/// Where a server's folder has the programs.
fn bin(folder: &Path, package: &Package) -> PathBuf {
    folder.join("tree").join(home(package)).join("bin")
}

/// Programs of PostgreSQL start each other from the folder they are in, and find their files from there: so that has
/// scripts that start them through their loader.
fn make_tree(folder: &Path, package: &Package) -> Result<()> {
    if std::env::var_os(package.variable).is_some() {
        return Ok(());
    }
    let root = package.fetch(&[])?;
    let root = root.canonicalize().map_err(Failure::of(root.display()))?;
    let bin = bin(folder, package);
    fs::create_dir_all(&bin)?;
    symlink(root.join("usr/share"), folder.join("tree/usr/share"))?;
    let library = home(package).join("lib");
    symlink(root.join(&library), folder.join("tree").join(&library))?;
    for name in ["initdb", "postgres"] {
        // By its own path it finds the folder.
        let program = bin.join(format!("{name}.program"));
        fs::copy(root.join(home(package)).join("bin").join(name), &program)?;
        let start = loader_command(&root, &program.to_string_lossy())?;
        let words: Vec<String> = std::iter::once(start.get_program())
            .chain(start.get_args())
            .map(|word| format!("'{}'", word.to_string_lossy()))
            .collect();
        let script = bin.join(name);
        let text = format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "));
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// A command that starts a program from a server's folder.
fn tree_command(folder: &Path, package: &Package, name: &str) -> Result<Command> {
    if std::env::var_os(package.variable).is_some() {
        return program_command(package, name);
    }
    let mut command = Command::new(bin(folder, package).join(name));
    command.env("LC_ALL", "C").env_remove("LD_LIBRARY_PATH");
    Ok(command)
}

/// How long a test waits for what a server does by itself.
const PATIENCE: Duration = Duration::from_secs(20);

impl Postgres {
    /// Waits until a statement answers so.
    ///
    /// # Errors
    /// When it doesn't in time, with what it answers instead.
    pub fn wait_for(&self, sql: &str, answer: &str) -> Result<()> {
        let begun = leasehold_core::clock::now();
        loop {
            let now = self.query(sql)?;
            if now == answer {
                return Ok(());
            }
            if leasehold_core::clock::now().since(begun).steady > PATIENCE {
                return Err(Failure::new(format!("{sql} still answers {now}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_is_there_after_a_stop_and_after_a_crash() {
        let mut postgres = Postgres::start().unwrap();
        postgres.query("CREATE TABLE t (n int)").unwrap();
        for n in 0..2 {
            postgres
                .query(&format!("INSERT INTO t VALUES ({n})"))
                .unwrap();
            if n == 0 {
                postgres.stop().unwrap();
            } else {
                postgres.crash().unwrap();
            }
            assert!(postgres.query("SELECT 1").is_err());
            postgres.start_again().unwrap();
        }
        assert_eq!(postgres.query("SELECT count(*) FROM t").unwrap(), "2");
        postgres.freeze().unwrap();
        postgres.thaw().unwrap();
        assert_eq!(postgres.query("SELECT 1").unwrap(), "1");
    }
}
