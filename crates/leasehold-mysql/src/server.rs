//! Which server it is, and what of it speaks against locks.

use std::collections::HashMap;

use leasehold_core::{Error, ErrorKind, Result};

/// What a server says of itself; it has none of what the other make has.
pub(crate) const VARIABLES: &str = "\
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'read_only', 'super_read_only',
    'innodb_read_only', 'wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode',
    'log_bin', 'sync_binlog', 'binlog_format', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite')";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edition {
    MySql,
    MariaDb,
}

impl Edition {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MySql => "MySQL",
            Self::MariaDb => "MariaDB",
        }
    }

    /// The first version that is taken.
    fn first(self) -> (u32, u32) {
        match self {
            Self::MySql => (8, 0),
            Self::MariaDb => (10, 6),
        }
    }

    /// What a session is set to, whatever the server is set to: it ends when it was silent for so many seconds, and no
    /// statement keeps it from that for longer than `most`.
    pub(crate) fn settings(self, silent: u64, most: u64) -> String {
        let bound = match self {
            // It bounds what only reads, which isn't what takes long.
            Self::MySql => "max_execution_time = 0".to_owned(),
            Self::MariaDb => format!("max_statement_time = {most}"),
        };
        format!(
            "SET SESSION wait_timeout = {silent}, autocommit = 1, innodb_lock_wait_timeout = {most}, \
             lock_wait_timeout = {most}, sql_mode = 'NO_ENGINE_SUBSTITUTION', {bound}"
        )
    }

    /// What a session is asked when it begins: its number, when the server started, and whether it keeps its settings.
    pub(crate) fn hello(self) -> String {
        let schema = match self {
            Self::MySql => "performance_schema",
            Self::MariaDb => "information_schema",
        };
        format!(
            "SELECT CONNECTION_ID() + 0, CAST(UNIX_TIMESTAMP() - VARIABLE_VALUE AS SIGNED), \
             CAST(VARIABLE_VALUE AS SIGNED), @@SESSION.wait_timeout, @@SESSION.autocommit \
             FROM {schema}.global_status WHERE VARIABLE_NAME = 'Uptime'"
        )
    }

    /// The server's list of sessions. MySQL's older one can't show statements with all characters.
    pub(crate) fn sessions(self) -> &'static str {
        match self {
            Self::MySql => "performance_schema.processlist",
            Self::MariaDb => "information_schema.PROCESSLIST",
        }
    }

    /// A wait, which no bound on statements ends.
    pub(crate) fn unbound(self, wait: &str) -> String {
        match self {
            Self::MySql => wait.to_owned(),
            Self::MariaDb => format!("SET STATEMENT max_statement_time = 0 FOR {wait}"),
        }
    }
}

/// A server as its variables have it.
#[derive(Debug)]
pub(crate) struct Server {
    variables: HashMap<String, String>,
}

impl Server {
    pub(crate) fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let lower = |(name, value): (String, String)| (name.to_ascii_lowercase(), value);
        Self {
            variables: variables.into_iter().map(lower).collect(),
        }
    }

    /// A variable's value; empty where there is none.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        !matches!(self.value(name), "" | "OFF" | "0")
    }

    pub(crate) fn version(&self) -> &str {
        self.value("version")
    }

    pub(crate) fn edition(&self) -> Edition {
        if self.version().to_lowercase().contains("mariadb") {
            Edition::MariaDb
        } else {
            Edition::MySql
        }
    }

    /// Whether it is one of a group whose members all write to each other.
    pub(crate) fn is_in_group(&self) -> bool {
        !self.value("group_replication_group_name").is_empty()
    }

    /// Fails where its locks can't be what they are to be.
    pub(crate) fn check(&self) -> Result<()> {
        let unsupported = |text: String| Err(Error::new(ErrorKind::Unsupported, text));
        let (edition, version) = (self.edition(), self.version());
        let (major, minor) = edition.first();
        if numbers(version) < (major, minor) || version.contains("TiDB") {
            return unsupported(format!(
                "the server's version is {version}; MySQL 8.0, MariaDB 10.6 and newer ones are known to end a silent \
                 session with all of its locks"
            ));
        }
        if self.is_on("wsrep_on") {
            return unsupported(
                "the server is a node of a Galera cluster, whose nodes know nothing of each other's locks; name a \
                 server that is in none"
                    .into(),
            );
        }
        if self.is_in_group() && !self.is_on("group_replication_single_primary_mode") {
            return unsupported(
                "the server is in a replication group that has several primaries, which know nothing of each other's \
                 locks; set group_replication_single_primary_mode"
                    .into(),
            );
        }
        let read_only = ["read_only", "super_read_only", "innodb_read_only"];
        if let Some(name) = read_only.into_iter().find(|name| self.is_on(name)) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the server takes no writes ({name} is on); is it a replica? Locks are the primary's"
                ),
            ));
        }
        Ok(())
    }
}

/// The first two numbers: 10 and 11 of `10.11.18-MariaDB-0+deb12u1`. Some write `5.5.5-` before it.
fn numbers(version: &str) -> (u32, u32) {
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: &str, more: &[(&str, &str)]) -> Server {
        let more = [("version", version)].into_iter().chain(more.to_vec());
        Server::new(more.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    fn refused(version: &str, more: &[(&str, &str)]) -> Option<ErrorKind> {
        server(version, more)
            .check()
            .err()
            .map(|error| error.kind())
    }

    #[test]
    fn versions_are_read_as_servers_write_them() {
        use ErrorKind::Unsupported;
        for (version, edition, refusal) in [
            ("8.0.11", Edition::MySql, None),
            ("9.7.4-2", Edition::MySql, None),
            ("5.7.44-log", Edition::MySql, Some(Unsupported)),
            ("10.11.18-MariaDB-0+deb12u1", Edition::MariaDb, None),
            ("5.5.5-10.6.0-MariaDB", Edition::MariaDb, None),
            ("11.4.2-mariadb", Edition::MariaDb, None),
            ("10.5.29-MariaDB", Edition::MariaDb, Some(Unsupported)),
            ("8.0.11-TiDB-v8.5.0", Edition::MySql, Some(Unsupported)),
            ("", Edition::MySql, Some(Unsupported)),
        ] {
            assert_eq!(server(version, &[]).edition(), edition, "{version}");
            assert_eq!(refused(version, &[]), refusal, "{version}");
        }
    }

    #[test]
    fn servers_whose_locks_are_not_all_there_are_refused() {
        use ErrorKind::{Unavailable, Unsupported};
        let mysql = "9.7.4";
        let single = ("group_replication_single_primary_mode", "ON");
        let several = ("group_replication_single_primary_mode", "OFF");
        let grouped = ("group_replication_group_name", "c1f9…");
        for (version, more, refusal) in [
            (
                "10.11.18-MariaDB",
                vec![("wsrep_on", "ON")],
                Some(Unsupported),
            ),
            ("10.11.18-MariaDB", vec![("wsrep_on", "OFF")], None),
            (
                mysql,
                vec![("group_replication_group_name", ""), several],
                None,
            ),
            (mysql, vec![grouped, single], None),
            (mysql, vec![grouped, several], Some(Unsupported)),
            (mysql, vec![("read_only", "ON")], Some(Unavailable)),
            (mysql, vec![("super_read_only", "ON")], Some(Unavailable)),
            (
                "12.1.1-MariaDB",
                vec![("read_only", "NO_LOCK")],
                Some(Unavailable),
            ),
        ] {
            assert_eq!(refused(version, &more), refusal, "{more:?}");
        }
    }
}
