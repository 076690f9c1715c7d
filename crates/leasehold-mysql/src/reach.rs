//! The way to a server: a connection that is let in, set up, and a session of its own there.

use std::time::Duration;

use leasehold_core::clock::{self, Moment};
use leasehold_core::{Error, ErrorKind, Result};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};

use crate::config::{Config, Place};
use crate::error::{failed, unexpected};
use crate::link::{Purpose, get, proxied};
use crate::server::{Edition, Server, VARIABLES};

/// How long all servers together may take to let us in.
const CONNECT: Duration = Duration::from_secs(4);
/// There is no such database.
const NO_DATABASE: u16 = 1049;

/// A connection, and what is known of its session.
pub(crate) struct Reached {
    pub(crate) conn: Conn,
    pub(crate) edition: Edition,
    /// The session's number.
    pub(crate) id: u64,
    /// When the server started, in its seconds.
    pub(crate) start: i64,
    /// For how many seconds it has run.
    pub(crate) uptime: i64,
    /// When the last statement of its beginning was sent.
    pub(crate) since: Moment,
}

impl Reached {
    /// Reaches the first of the servers that takes writes.
    ///
    /// # Cancel safety
    /// Safe: what was begun ends.
    pub(crate) async fn first(config: &Config, purpose: Purpose) -> Result<Self> {
        let count = u32::try_from(config.places.len()).unwrap_or(1).max(1);
        let mut last = None;
        for place in &config.places {
            let reaching = Self::at(config, place, purpose);
            let error = match clock::timeout(CONNECT / count, reaching).await {
                Some(Ok(reached)) => return Ok(reached),
                Some(Err(error)) => error,
                None => Error::new(
                    ErrorKind::Unavailable,
                    "the server lets nobody in within its time",
                ),
            };
            // Of several errors the one that waiting doesn't cure says most.
            if last.as_ref().is_none_or(Error::is_retryable) {
                last = Some(error);
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Bug, "no server was named")))
    }

    async fn at(config: &Config, place: &Place, purpose: Purpose) -> Result<Self> {
        let fail = |error: mysql_async::Error| failed(&error);
        let mut conn = Conn::new(config.driver(place)).await.map_err(fail)?;
        let variables: Vec<(String, String)> = conn.query(VARIABLES).await.map_err(fail)?;
        let server = Server::new(variables);
        server.check()?;
        let (edition, silent) = (server.edition(), purpose.silent());
        for setting in [
            "SET NAMES utf8mb4",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
            &edition.settings(silent, purpose.statement()),
        ] {
            conn.query_drop(setting).await.map_err(fail)?;
        }
        let since = clock::now();
        let hello: Option<Row> = conn.query_first(edition.hello()).await.map_err(fail)?;
        let hello = hello.ok_or_else(|| unexpected("when it was started"))?;
        let id = get(&hello, 0)?;
        if u64::from(conn.id()) != id {
            return Err(proxied());
        }
        if get::<u64>(&hello, 3)? != silent || get::<u64>(&hello, 4)? != 1 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the session doesn't keep its settings; is there a proxy before the server? Name the server itself",
            ));
        }
        Ok(Self {
            conn,
            edition,
            id,
            start: get(&hello, 1)?,
            uptime: get(&hello, 2)?,
            since,
        })
    }

    /// The connection alone, in the database that locks are counted in where the URL named none.
    pub(crate) async fn into_conn(self, config: &Config) -> Result<Conn> {
        const USE: &str = "USE leasehold";
        let mut conn = self.conn;
        if config.names_database() {
            return Ok(conn);
        }
        let used = match conn.query_drop(USE).await {
            Err(mysql_async::Error::Server(said)) if said.code == NO_DATABASE => {
                let made = conn.query_drop("CREATE DATABASE IF NOT EXISTS leasehold");
                made.await.map_err(|error| failed(&error))?;
                conn.query_drop(USE).await
            }
            used => used,
        };
        used.map_err(|error| failed(&error))?;
        Ok(conn)
    }
}
