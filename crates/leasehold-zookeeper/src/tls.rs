//! What a `zookeepers://` URL says of certificates.

use std::sync::Arc;

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The file with the CA to trust instead of the system's.
pub(crate) const CA_FILE: &str = "ca-file";
/// The file with the certificate to show to a server that asks for one.
pub(crate) const CLIENT_CERT_FILE: &str = "client-cert-file";
/// The file with its key.
pub(crate) const CLIENT_KEY_FILE: &str = "client-key-file";

/// Takes the parameters out of the URL and reads the files they name. None for a URL without TLS.
pub(crate) fn config(url: &mut StoreUrl) -> Result<Option<Arc<ClientConfig>>> {
    let files = [CA_FILE, CLIENT_CERT_FILE, CLIENT_KEY_FILE].map(|name| (name, url.take(name)));
    if url.scheme() != "zookeepers" {
        return match files.iter().find(|(_, file)| file.is_some()) {
            Some((name, _)) => Err(invalid(format!("{name} is for zookeepers:// alone"))),
            None => Ok(None),
        };
    }
    let [(_, ca), (_, certificate), (_, key)] = files;
    // One provider of this crate's choice: the process's default is the application's business.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(format!("TLS can't be set up: {error}")))?
        .with_root_certificates(roots(ca.as_deref())?);
    let config = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(CLIENT_CERT_FILE, &certificate)?;
            let key = PrivateKeyDer::from_pem_file(&key)
                .map_err(|error| unreadable(CLIENT_KEY_FILE, &key, &error))?;
            config.with_client_auth_cert(chain, key).map_err(|error| {
                invalid(format!("{CLIENT_CERT_FILE} and {CLIENT_KEY_FILE}: {error}"))
            })?
        }
        (None, None) => config.with_no_client_auth(),
        _ => {
            return Err(invalid(format!(
                "{CLIENT_CERT_FILE} and {CLIENT_KEY_FILE} go together"
            )));
        }
    };
    Ok(Some(Arc::new(config)))
}

/// The CAs to trust: those in the file, or the system's.
fn roots(ca: Option<&str>) -> Result<RootCertStore> {
    let trusted = match ca {
        Some(file) => certificates(CA_FILE, file)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    // The system may have some that this library can't read.
    let (added, _) = roots.add_parsable_certificates(trusted);
    if added == 0 {
        return Err(invalid(match ca {
            Some(file) => format!("{CA_FILE}={file} holds no CA certificate"),
            None => format!("the system trusts no CA; name one with ?{CA_FILE}=…"),
        }));
    }
    Ok(roots)
}

fn certificates(name: &str, file: &str) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(name, file, &error))?;
    if certificates.is_empty() {
        return Err(invalid(format!(
            "{name}={file} holds no certificate in PEM form"
        )));
    }
    Ok(certificates)
}

fn unreadable(name: &str, file: &str, error: &dyn std::fmt::Display) -> Error {
    invalid(format!("{name}={file} can't be read: {error}"))
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a ZooKeeper URL: {what}"))
}
