//! PgBouncer before PostgreSQL.

use std::fs;

use super::postgres::{as_nobody, give};
use super::{Package, Port, Postgres, Result, Server};

const BOUNCER: Package = Package {
    suite: "bookworm",
    name: "pgbouncer",
    program: "usr/sbin/pgbouncer",
    variable: "LEASEHOLD_TEST_PGBOUNCER",
};

/// PgBouncer before a server, which gives a connection of the server's to a client for one transaction at a time, or for
/// as long as the client stays.
#[derive(Debug)]
pub struct PgBouncer {
    port: Port,
    _server: Server,
}

impl PgBouncer {
    /// The package that it comes from.
    #[must_use]
    pub fn package() -> Package {
        BOUNCER
    }

    /// Starts one before `postgres`; `mode` is its `pool_mode`, and `more` are further lines of its settings.
    ///
    /// # Errors
    /// When it can't be had or doesn't start, with its log.
    pub fn start(postgres: &Postgres, mode: &str, more: &str) -> Result<Self> {
        let (port, mut server) = (Port::reserve()?, Server::new()?);
        let folder = server.folder();
        give(folder)?;
        let settings = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n{more}\n",
            postgres.address().port(),
            port.number(),
        );
        fs::write(&settings, text)?;
        give(&settings)?;
        let mut command = BOUNCER.command()?;
        command.arg(&settings);
        server.launch(&as_nobody(&command))?;
        let address = port.address();
        server.wait_until(|| std::net::TcpStream::connect(address).is_ok())?;
        Ok(Self {
            port,
            _server: server,
        })
    }

    /// The URL of the database `locks` through it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/locks", self.port.address())
    }
}

#[cfg(test)]
mod tests {
    use super::super::packages::run;
    use super::*;

    #[test]
    fn a_pooler_hands_statements_on() {
        let postgres = Postgres::start().unwrap();
        let bouncer = PgBouncer::start(&postgres, "transaction", "").unwrap();
        let mut psql = postgres.psql("locks").unwrap();
        let answer = run(psql.args(["-c", "SELECT 1", &bouncer.url()])).unwrap();
        assert_eq!(answer.trim_end(), "1");
    }
}
