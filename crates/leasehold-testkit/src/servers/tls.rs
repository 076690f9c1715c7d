//! Certificates for servers that speak TLS.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::Result;
use super::packages::run;

/// A new key for a request.
const KEY: &str = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
/// Whom the certificates are for, and what they allow.
const SIGNED: [(&str, &str); 2] = [
    (
        "server",
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth",
    ),
    ("client", "extendedKeyUsage=clientAuth"),
];

/// A CA of one's own with a server's and a client's certificate, in a folder that ends with it.
#[derive(Debug)]
pub struct Authority(TempDir);

impl Authority {
    /// Makes one, with the command `openssl`.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn new() -> Result<Self> {
        let authority = Self(tempfile::tempdir()?);
        authority.openssl(&format!(
            "{KEY} -x509 -subj /CN=ca -days 2 -keyout ca.key -out ca.crt"
        ))?;
        for (name, extension) in SIGNED {
            fs::write(authority.path("extensions"), extension)?;
            authority.openssl(&format!(
                "{KEY} -subj /CN={name} -keyout {name}.key -out {name}.csr"
            ))?;
            authority.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions \
                 -out {name}.crt"
            ))?;
        }
        Ok(authority)
    }

    fn openssl(&self, words: &str) -> Result<()> {
        let mut command = Command::new("openssl");
        command.args(words.split(' ')).current_dir(&self.0);
        run(&mut command).map(drop)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What a server is given.
    #[must_use]
    pub fn server(&self) -> TlsFiles {
        TlsFiles {
            ca: self.path("ca.crt"),
            cert: self.path("server.crt"),
            key: self.path("server.key"),
        }
    }

    /// The parameters of a client that trusts the CA: `ca-file=…`.
    #[must_use]
    pub fn trusting(&self) -> String {
        format!("ca-file={}", self.path("ca.crt").display())
    }

    /// The parameters of one that shows a certificate besides.
    #[must_use]
    pub fn showing(&self) -> String {
        format!(
            "{}&client-cert-file={}&client-key-file={}",
            self.trusting(),
            self.path("client.crt").display(),
            self.path("client.key").display()
        )
    }
}

/// The PEM files that a server takes for TLS. It asks clients for a certificate of the same CA.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The CA of both sides.
    pub ca: PathBuf,
    /// The server's certificate.
    pub cert: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// The settings of a server that listens for TLS on this port besides its plain one, and talks TLS to the others
    /// of its group.
    pub(super) fn settings(&self, port: u16) -> Vec<(String, String)> {
        let port = port.to_string();
        [
            ("tls-port", port),
            ("tls-ca-cert-file", self.ca.display().to_string()),
            ("tls-cert-file", self.cert.display().to_string()),
            ("tls-key-file", self.key.display().to_string()),
            ("tls-auth-clients", "yes".to_owned()),
            ("tls-replication", "yes".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }
}
