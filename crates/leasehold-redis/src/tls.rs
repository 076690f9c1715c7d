//! What a URL with TLS says of certificates.

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};
use redis::{ClientTlsConfig, TlsCertificates};

/// The file with the CA to trust instead of the system's.
pub(crate) const CA_FILE: &str = "ca-file";
/// The file with the certificate to show to a server that asks for one.
pub(crate) const CLIENT_CERT_FILE: &str = "client-cert-file";
/// The file with its key.
pub(crate) const CLIENT_KEY_FILE: &str = "client-key-file";

/// Takes the parameters out of the URL and reads the files they name. None where the URL names none: then the
/// system's CAs are trusted, and the server is shown no certificate.
pub(crate) fn certificates(url: &mut StoreUrl) -> Result<Option<TlsCertificates>> {
    let mut files = [CA_FILE, CLIENT_CERT_FILE, CLIENT_KEY_FILE].map(|name| (name, url.take(name)));
    if !is_tls(url)
        && let Some((name, _)) = files.iter().find(|(_, file)| file.is_some())
    {
        return Err(invalid(format!(
            "{name} is for TLS alone: rediss://, rediss+sentinel://, rediss+cluster://, redlocks://"
        )));
    }
    let [root_cert, client_cert, client_key] = files.each_mut().map(|(name, file)| {
        let file = file.take();
        file.map(|file| read(name, &file)).transpose()
    });
    let client_tls = match (client_cert?, client_key?) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig {
            client_cert,
            client_key,
        }),
        (None, None) => None,
        _ => {
            return Err(invalid(format!(
                "{CLIENT_CERT_FILE} and {CLIENT_KEY_FILE} go together"
            )));
        }
    };
    let root_cert = root_cert?;
    Ok(
        (root_cert.is_some() || client_tls.is_some()).then_some(TlsCertificates {
            client_tls,
            root_cert,
        }),
    )
}

/// Whether the URL's scheme is one with TLS.
pub(crate) fn is_tls(url: &StoreUrl) -> bool {
    url.scheme().starts_with("rediss") || url.scheme() == "redlocks"
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

fn read(name: &str, file: &str) -> Result<Vec<u8>> {
    let pem = std::fs::read(file)
        .map_err(|error| invalid(format!("{name}={file} can't be read: {error}")))?;
    // Without any certificate in it no server would be trusted, and the error would speak of the server.
    let mark = b"-----BEGIN ";
    if pem.windows(mark.len()).any(|window| window == mark) {
        Ok(pem)
    } else {
        Err(invalid(format!("{name}={file} holds nothing in PEM form")))
    }
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a Redis URL: {what}"))
}
