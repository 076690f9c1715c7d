//! What a `consuls://` URL says of certificates.

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

/// Takes the parameters out of the URL and reads the files they name. A URL without TLS trusts nobody.
pub(crate) fn config(url: &mut StoreUrl) -> Result<ClientConfig> {
    let files = [CA_FILE, CLIENT_CERT_FILE, CLIENT_KEY_FILE].map(|name| (name, url.take(name)));
    let encrypted = url.scheme() == "consuls";
    if !encrypted && let Some((name, _)) = files.iter().find(|(_, file)| file.is_some()) {
        return Err(invalid(format!("{name} is for consuls:// alone")));
    }
    let [ca, certificate, key] =
        files.map(|(name, file)| file.map(|file| (name, read(name, &file))));
    let mut roots = RootCertStore::empty();
    match ca {
        Some((name, pem)) => {
            for root in certificates(name, &pem?)? {
                roots
                    .add(root)
                    .map_err(|error| unusable(name).because(error))?;
            }
        }
        None if encrypted => {
            // Those that can't be read are no reason to refuse the others.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    // Named, so that what the process has chosen elsewhere, or not chosen, makes no difference.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Bug, "TLS can't be set up").because(error))?
        .with_root_certificates(roots);
    match (certificate, key) {
        (None, None) => Ok(config.with_no_client_auth()),
        (Some((cert_name, cert)), Some((key_name, key))) => {
            let chain = certificates(cert_name, &cert?)?;
            let key = PrivateKeyDer::from_pem_slice(&key?)
                .map_err(|error| unusable(key_name).because(error))?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| unusable(CLIENT_CERT_FILE).because(error))
        }
        _ => Err(invalid(format!(
            "{CLIENT_CERT_FILE} and {CLIENT_KEY_FILE} go together"
        ))),
    }
}

fn read(name: &str, file: &str) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| invalid(format!("{name}={file} can't be read: {error}")))
}

/// The certificates in a file; at least one.
fn certificates(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(invalid(format!("{name} holds no certificate in PEM form"))),
        Err(error) => Err(unusable(name).because(error.to_string())),
    }
}

fn unusable(name: &str) -> Error {
    invalid(format!(
        "what {name} names can't be used; is it PEM, and do certificate and key belong together?"
    ))
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, format!("not a Consul URL: {what}"))
}
