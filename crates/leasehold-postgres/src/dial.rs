//! A connection as the server gives it, and what a session on it is set to.

use std::convert::Infallible;
use std::time::Duration;

use leasehold_core::advisory::Failure;
use leasehold_core::background;
use leasehold_core::pem;
use leasehold_core::{Error, ErrorKind};
use tokio::sync::oneshot;
use tokio_postgres::Client;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::{Config, Place};
use crate::error::failed;
use crate::link::Purpose;

/// The first version whose sessions end when they are idle.
pub(crate) const VERSION: u32 = 14;
/// How often the server looks whether a client that waits is still there.
const WATCH_MS: u32 = 500;

/// A connection as the server gives it.
pub(crate) struct Dialled {
    pub(crate) client: Client,
    /// The server's version, where that can be read.
    pub(crate) version: Option<u32>,
    /// An error once the connection has ended.
    pub(crate) ended: oneshot::Receiver<Infallible>,
}

/// Connects to a server, and changes nothing there.
pub(crate) async fn dial(config: &Config, place: &Place) -> Result<Dialled, Failure> {
    let tls = match &config.tls {
        Some(tls) => tls.clone(),
        None => pem::trusting_nobody().map_err(Failure::Refused)?,
    };
    let connecting = driver(config, place);
    let connecting = connecting.connect(MakeRustlsConnect::new(tls));
    let (client, connection) = connecting.await.map_err(failed)?;
    let version = connection.parameter("server_version").map(major);
    let (lives, ended) = oneshot::channel();
    background::spawn_here(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a session ended");
        }
        drop(lives);
    });
    Ok(Dialled {
        client,
        version,
        ended,
    })
}

fn driver(config: &Config, place: &Place) -> tokio_postgres::Config {
    let mut driver = tokio_postgres::Config::new();
    driver
        .user(&config.user)
        .dbname(&config.database)
        .application_name("leasehold")
        // A server that is gone without a word is noticed while we wait for a lock, too.
        .keepalives_idle(Duration::from_secs(5))
        .keepalives_interval(Duration::from_secs(2))
        .keepalives_retries(3)
        .tcp_user_timeout(Duration::from_secs(10))
        .ssl_mode(match config.tls {
            Some(_) => SslMode::Require,
            None => SslMode::Disable,
        });
    match place {
        Place::Tcp(address) => driver.host(&address.host).port(address.port),
        Place::Folder(folder) => driver.host_path(folder),
    };
    if let Some(password) = &config.password {
        driver.password(password);
    }
    driver
}

/// What a session is set to, whatever its role and its database are set to.
pub(crate) fn settings(purpose: Purpose, ends_idle: bool) -> String {
    let idle = purpose.idle().as_millis();
    let statement = purpose.statement().as_millis();
    let mut text = format!(
        "SET idle_in_transaction_session_timeout = {idle}; SET statement_timeout = {statement}; SET lock_timeout = 0; \
         SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; \
         SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
         SET tcp_user_timeout = 10000; SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') <> 'remote_apply';"
    );
    if ends_idle {
        text += &format!(
            " SET idle_session_timeout = {idle}; SET client_connection_check_interval = {WATCH_MS};"
        );
    }
    text
}

/// The number before the first dot: 15 of `15.4 (Debian 15.4-1)`.
fn major(version: &str) -> u32 {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

pub(crate) fn too_old(version: Option<u32>) -> Error {
    let version = version.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server's version is {version}, and sessions end when they are idle from {VERSION} on: a holder that \
             stands still would hold for ever; with ?lease=tcp it does"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_servers_write_it() {
        for (text, version) in [
            ("15.18 (Debian 15.18-0+deb12u1)", 15),
            ("9.6.24", 9),
            ("18beta1", 18),
            ("", 0),
        ] {
            assert_eq!(major(text), version, "{text}");
        }
    }
}
