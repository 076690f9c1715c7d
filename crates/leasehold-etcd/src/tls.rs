//! What an `etcds://` URL says of certificates.

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// The file with the CA to trust instead of the system's.
pub(crate) const CA_FILE: &str = "ca-file";
/// The file with the certificate to show to a server that asks for one.
pub(crate) const CLIENT_CERT_FILE: &str = "client-cert-file";
/// The file with its key.
pub(crate) const CLIENT_KEY_FILE: &str = "client-key-file";

/// Takes the parameters out of the URL and reads the files they name. None for a URL without TLS.
pub(crate) fn config(url: &mut StoreUrl) -> Result<Option<ClientTlsConfig>> {
    let files = [CA_FILE, CLIENT_CERT_FILE, CLIENT_KEY_FILE].map(|name| (name, url.take(name)));
    if url.scheme() != "etcds" {
        return match files.iter().find(|(_, file)| file.is_some()) {
            Some((name, _)) => Err(invalid(format!("{name} is for etcds:// alone"))),
            None => Ok(None),
        };
    }
    let [ca, certificate, key] =
        files.map(|(name, file)| file.map(|file| read(name, &file)).transpose());
    let mut tls = ClientTlsConfig::new();
    tls = match ca? {
        Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
        None => tls.with_native_roots(),
    };
    tls = match (certificate?, key?) {
        (Some(certificate), Some(key)) => tls.identity(Identity::from_pem(certificate, key)),
        (None, None) => tls,
        _ => {
            return Err(invalid(format!(
                "{CLIENT_CERT_FILE} and {CLIENT_KEY_FILE} go together"
            )));
        }
    };
    Ok(Some(tls))
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
    Error::new(ErrorKind::Invalid, format!("not an etcd URL: {what}"))
}
