//! A standby that follows a server.

use super::{Postgres, as_nobody, give, make_tree, program_command};
use crate::servers::packages::run;
use crate::servers::{Port, Result, Server};

impl Postgres {
    /// Starts a standby of this one, which has all that was committed when this returns, and follows.
    ///
    /// # Errors
    /// When it can't be copied or doesn't start, with its log.
    pub fn standby(&self) -> Result<Self> {
        let mut standby = Self {
            package: self.package,
            port: Port::reserve()?,
            server: Server::new()?,
        };
        let folder = standby.server.folder();
        give(folder)?;
        make_tree(folder, &self.package)?;
        let mut copy = as_nobody(&program_command(&self.package, "pg_basebackup")?);
        run(copy
            .args(["-h", "127.0.0.1", "-U", "postgres", "-p"])
            .arg(self.port.number().to_string())
            .arg("--pgdata")
            .arg(standby.data())
            .args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf"])
            .current_dir(folder))?;
        standby.start_again()?;
        Ok(standby)
    }

    /// Makes a standby the primary.
    ///
    /// # Errors
    /// When it isn't one or doesn't become one.
    pub fn promote(&self) -> Result<()> {
        self.query("SELECT pg_promote()")?;
        self.wait_for("SELECT pg_is_in_recovery()", "f")
    }
}
