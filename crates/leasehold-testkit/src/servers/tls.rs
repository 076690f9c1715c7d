//! Certificates for servers that speak TLS.

use std::path::PathBuf;

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
