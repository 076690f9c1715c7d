//! What a `mysql://` URL says.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::pem::{self, PemFiles};
use leasehold_core::url::{StoreUrl, suggestion};
use leasehold_core::{Address, Error, ErrorKind, Result};
use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};

use crate::option_file::Options;

const SSL_MODE: &str = "ssl-mode";
const SOCKET: &str = "socket";
const PORT: u16 = 3306;

/// The parameters besides `prefix`, which every store has.
const PARAMETERS: &[&str] = &[
    pem::CA_FILE,
    pem::CLIENT_CERT_FILE,
    pem::CLIENT_KEY_FILE,
    "prefix",
    SOCKET,
    SSL_MODE,
];

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(Address),
    /// Its unix socket.
    Socket(PathBuf),
}

/// The servers and how to speak with them.
#[derive(Clone)]
pub(crate) struct Config {
    /// Where the server is, or several that one of may be the primary.
    pub(crate) places: Vec<Place>,
    user: String,
    password: Option<String>,
    /// The database that is logged in to. Locks are the server's, whichever that is.
    database: Option<String>,
    /// What is trusted; none where no TLS is spoken.
    tls: Option<SslOpts>,
    /// The URL without secrets.
    pub(crate) shown: Arc<str>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.shown).finish()
    }
}

impl Config {
    /// Reads a URL; what it doesn't say is looked for by `env`.
    pub(crate) fn of(mut url: StoreUrl, env: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let shown: Arc<str> = url.to_string().into();
        let options = Options::read(&env)?;
        let places = places(&mut url, &options)?;
        let tls = tls(&mut url, &places)?;
        url.finish(PARAMETERS)?;
        let path = url.path().trim_start_matches('/');
        if path.contains(['/', '\0']) {
            return Err(invalid(
                "its path is a database's name or nothing, as in mysql://user@host/app",
            ));
        }
        let user = url.user().map(str::to_owned).or(options.user);
        Ok(Self {
            places,
            user: user.ok_or_else(|| invalid("it lacks a user, as in mysql://user@host"))?,
            // In the order in which the servers' own clients look.
            password: match url.password().map(str::to_owned).or(options.password) {
                None => variable(&env)?,
                password => password,
            },
            database: Some(path.to_owned()).filter(|path| !path.is_empty()),
            tls,
            shown,
        })
    }

    /// Whether the URL names a database.
    pub(crate) fn names_database(&self) -> bool {
        self.database.is_some()
    }

    /// What the driver is told of one of the servers.
    pub(crate) fn driver(&self, place: &Place) -> Opts {
        let driver = OptsBuilder::default()
            .user(Some(&self.user))
            .pass(self.password.clone())
            .db_name(self.database.clone())
            .ssl_opts(self.tls.clone())
            // A server on this host is otherwise reached by its socket in the end, whatever was named.
            .prefer_socket(false)
            .tcp_keepalive(Some(Duration::from_secs(5)))
            // What it would ask the server for otherwise.
            .max_allowed_packet(Some(1 << 20))
            .wait_timeout(Some(3600));
        match place {
            Place::Tcp(address) => driver
                .ip_or_hostname(address.host.clone())
                .tcp_port(address.port),
            Place::Socket(path) => driver.socket(Some(path.to_string_lossy())),
        }
        .into()
    }
}

fn variable(env: impl Fn(&str) -> Option<OsString>) -> Result<Option<String>> {
    let password = env("MYSQL_PWD").filter(|password| !password.is_empty());
    let password = password.map(OsString::into_string).transpose();
    password.map_err(|_| Error::new(ErrorKind::Invalid, "the password in MYSQL_PWD isn't UTF-8"))
}

fn places(url: &mut StoreUrl, options: &Options) -> Result<Vec<Place>> {
    let socket = url.take(SOCKET);
    match (url.hosts(), socket) {
        ("", Some(path)) if path.starts_with('/') => Ok(vec![Place::Socket(path.into())]),
        (_, Some(_)) => Err(invalid(
            "socket is the path of a unix socket and stands alone, as in mysql://user@?socket=/run/mysqld/mysqld.sock",
        )),
        ("", None) => configured(options),
        (_, None) => Ok(url.addresses(PORT)?.into_iter().map(Place::Tcp).collect()),
    }
}

/// The server that the option file names.
fn configured(options: &Options) -> Result<Vec<Place>> {
    let port = options.port.as_deref().map(str::parse).transpose();
    let port = port.map_err(|_| invalid("the port in ~/.my.cnf is no number"))?;
    match (&options.socket, &options.host) {
        (_, Some(host)) if host != "localhost" || options.socket.is_none() => {
            Ok(vec![Place::Tcp(Address {
                host: host.clone(),
                port: port.unwrap_or(PORT),
            })])
        }
        (Some(socket), _) => Ok(vec![Place::Socket(socket.into())]),
        _ => Err(invalid(
            "it lacks a host, as in mysql://user@db.example:3306, and ~/.my.cnf names none for [client]",
        )),
    }
}

/// TLS is spoken with whoever isn't this host, and never given up for plain text.
fn tls(url: &mut StoreUrl, places: &[Place]) -> Result<Option<SslOpts>> {
    let modes = ["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"];
    let mode = url.take(SSL_MODE);
    let wanted = match mode.as_deref().map(str::to_ascii_uppercase).as_deref() {
        Some("DISABLED") => false,
        // All of them check the certificate and the name: less than people mean it never is.
        Some("REQUIRED" | "VERIFY_CA" | "VERIFY_IDENTITY") => true,
        Some("PREFERRED") => {
            return Err(invalid(
                "ssl-mode=PREFERRED falls back to plain text unseen; write VERIFY_IDENTITY or DISABLED",
            ));
        }
        Some(mode) => {
            return Err(invalid(&format!(
                "there is no ssl-mode={mode}; {}",
                suggestion(mode, &modes)
            )));
        }
        None => !places.iter().all(is_here),
    };
    if !wanted {
        let files = [pem::CA_FILE, pem::CLIENT_CERT_FILE, pem::CLIENT_KEY_FILE];
        return match files.into_iter().find(|name| url.take(name).is_some()) {
            Some(name) => Err(invalid(&format!(
                "{name} is for TLS alone; write ssl-mode=VERIFY_IDENTITY, too"
            ))),
            None => Ok(None),
        };
    }
    if places.iter().any(|place| matches!(place, Place::Socket(_))) {
        return Err(invalid("no TLS is spoken over a unix socket"));
    }
    let files = PemFiles::take(url, &["mysql", "mariadb"])?;
    files.as_ref().map(trusting).transpose()
}

/// What the driver is told of the certificates.
fn trusting(files: &PemFiles) -> Result<SslOpts> {
    // So that what can't be used is an error of the URL's.
    files.client_config()?;
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(Error::new(
            ErrorKind::Invalid,
            "TLS needs a cryptography provider and this process has none; call \
             rustls::crypto::ring::default_provider().install_default() at its start",
        ));
    }
    let roots: Vec<Vec<u8>> = match &files.ca {
        Some(pem) => vec![pem.clone()],
        None => rustls_native_certs::load_native_certs()
            .certs
            .iter()
            .map(|der| der.to_vec())
            .collect(),
    };
    let client = files.client.as_ref().map(|client| {
        ClientIdentity::new(client.certificate.clone().into(), client.key.clone().into())
    });
    Ok(SslOpts::default()
        .with_disable_built_in_roots(true)
        .with_root_certs(roots.into_iter().map(Into::into).collect())
        .with_client_identity(client))
}

/// Whether what is sent there doesn't leave this host.
fn is_here(place: &Place) -> bool {
    match place {
        Place::Socket(_) => true,
        Place::Tcp(address) => {
            let ip: Option<std::net::IpAddr> = address.host.parse().ok();
            address.host == "localhost" || ip.is_some_and(|ip| ip.is_loopback())
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a MySQL URL: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Config::of(StoreUrl::parse(url)?, |_| None)
    }

    fn shown(config: &Config) -> Vec<String> {
        let place = |place: &Place| match place {
            Place::Tcp(address) => address.to_string(),
            Place::Socket(path) => path.display().to_string(),
        };
        config.places.iter().map(place).collect()
    }

    #[test]
    fn servers_are_read() {
        let one = config("mysql://me:secret@localhost/app").unwrap();
        assert_eq!(
            (one.user.as_str(), one.database.as_deref()),
            ("me", Some("app"))
        );
        assert_eq!(one.password.as_deref(), Some("secret"));
        assert!(!format!("{one:?}").contains("secret"));
        let two = config("mariadb://me@h1,[::1]:7?ssl-mode=disabled").unwrap();
        assert_eq!(shown(&two), ["h1:3306", "[::1]:7"]);
        assert_eq!(two.database, None);
        let socket = config("mysql://me@?socket=/run/mysqld/mysqld.sock").unwrap();
        assert_eq!(shown(&socket), ["/run/mysqld/mysqld.sock"]);
    }

    #[test]
    fn what_the_url_does_not_say_is_taken_from_where_clients_look() {
        let home = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(home.path().join(".my.cnf"), text).unwrap();
        let of = |url: &str| {
            let env = |name: &str| match name {
                "HOME" => Some(home.path().into()),
                "MYSQL_PWD" => Some("variable".into()),
                _ => None,
            };
            Config::of(StoreUrl::parse(url).unwrap(), env)
        };
        let only = of("mysql://me@localhost").unwrap();
        assert_eq!(only.password.as_deref(), Some("variable"));
        write("[client]\nuser=you\npassword=file\nhost=127.0.0.1\nport=3307\n");
        let all = of("mysql://").unwrap();
        assert_eq!(
            (all.user.as_str(), shown(&all)),
            ("you", vec!["127.0.0.1:3307".into()])
        );
        assert_eq!(all.password.as_deref(), Some("file"));
        let some = of("mysql://me:url@localhost").unwrap();
        assert_eq!(
            (some.user.as_str(), some.password.as_deref()),
            ("me", Some("url"))
        );
        assert_eq!(shown(&some), ["localhost:3306"]);
        write("[client]\nuser=you\nhost=localhost\nsocket=/run/s\n");
        assert_eq!(shown(&of("mysql://").unwrap()), ["/run/s"]);
    }

    #[test]
    fn tls_is_spoken_with_other_hosts_unless_that_is_written() {
        for (url, tls) in [
            ("mysql://me@127.0.0.1/app", false),
            ("mysql://me@[::1],localhost", false),
            ("mysql://me@db.example/app", true),
            ("mysql://me@127.0.0.1,db.example", true),
            ("mysql://me@db.example?ssl-mode=DISABLED", false),
            ("mysql://me@127.0.0.1?ssl-mode=required", true),
            ("mysql://me@127.0.0.1?ssl-mode=VERIFY_IDENTITY", true),
        ] {
            assert_eq!(config(url).unwrap().tls.is_some(), tls, "{url}");
        }
    }

    #[test]
    fn typos_are_errors_and_show_no_password() {
        for url in [
            "mysql://",
            "mysql://me@",
            "mysql://h",
            "mysql://me@localhost/a/b",
            "mysql://me:canary@localhost:x",
            "mysql://me@localhost?socket=/run/s",
            "mysql://me@?socket=run",
            "mysql://me@?socket=/run/s&ssl-mode=REQUIRED",
            "mysql://me:canary@h?ssl-mode=PREFERRED",
            "mysql://me:canary@h?ssl-mode=VERIFYIDENTITY",
            "mysql://me:canary@h?sslmode=REQUIRED",
            "mysql://me@localhost?ca-file=/etc/ssl/ca.pem",
            "mysql://me@h?ca-file=/nowhere/ca.pem",
            "mysql://me:canary@localhost?prefx=a",
        ] {
            let error = config(url)
                .err()
                .unwrap_or_else(|| panic!("{url} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
