//! What a URL with TLS says of certificates.

use leasehold_core::pem::PemFiles;
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};
use redis::{ClientTlsConfig, TlsCertificates};

/// The schemes with TLS.
const SCHEMES: &[&str] = &["rediss", "rediss+sentinel", "rediss+cluster", "redlocks"];

/// Takes the parameters out of the URL and reads the files they name. None where the URL names none: then the
/// system's CAs are trusted, and the server is shown no certificate.
pub(crate) fn certificates(url: &mut StoreUrl) -> Result<Option<TlsCertificates>> {
    let files = PemFiles::take(url, SCHEMES)?.filter(|files| *files != PemFiles::default());
    Ok(files.map(|files| TlsCertificates {
        client_tls: files.client.map(|client| ClientTlsConfig {
            client_cert: client.certificate,
            client_key: client.key,
        }),
        root_cert: files.ca,
    }))
}

/// Whether the URL's scheme is one with TLS.
pub(crate) fn is_tls(url: &StoreUrl) -> bool {
    SCHEMES.contains(&url.scheme())
}

/// Fails where this process has no cryptography for TLS.
pub(crate) fn check_provider() -> Result<()> {
    match rustls::crypto::CryptoProvider::get_default() {
        Some(_) => Ok(()),
        None => Err(Error::new(
            ErrorKind::Invalid,
            "TLS needs a cryptography provider and this process has none; call \
             rustls::crypto::ring::default_provider().install_default() at its start",
        )),
    }
}
