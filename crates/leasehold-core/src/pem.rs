//! The certificates that a store URL names.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::url::StoreUrl;

/// The parameter that names the file with the CA to trust instead of the system's.
pub const CA_FILE: &str = "ca-file";
/// The one that names the certificate to show to a server that asks for one.
pub const CLIENT_CERT_FILE: &str = "client-cert-file";
/// And its key.
pub const CLIENT_KEY_FILE: &str = "client-key-file";

/// What the files hold that a URL names for TLS, in PEM form (RFC 7468).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PemFiles {
    /// The CAs to trust instead of the system's.
    pub ca: Option<Vec<u8>>,
    /// What to show to a server that asks for a certificate.
    pub client: Option<ClientPem>,
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientPem {
    /// The certificate, with those between it and the CA.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
}

impl PemFiles {
    /// Takes the parameters out of the URL and reads the files; none where the URL's scheme is not one of `schemes`,
    /// those with TLS.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for parameters without TLS, files that can't be read or hold nothing in PEM form, and a
    /// certificate without a key.
    pub fn take(url: &mut StoreUrl, schemes: &[&str]) -> Result<Option<Self>> {
        let mut files =
            [CA_FILE, CLIENT_CERT_FILE, CLIENT_KEY_FILE].map(|name| (name, url.take(name)));
        if !schemes.contains(&url.scheme()) {
            return match files.iter().find(|(_, file)| file.is_some()) {
                Some((name, _)) => {
                    let schemes: Vec<String> =
                        schemes.iter().map(|name| format!("{name}://")).collect();
                    Err(invalid(format!(
                        "{name} is for TLS alone: {}",
                        schemes.join(", ")
                    )))
                }
                None => Ok(None),
            };
        }
        let [ca, certificate, key] = files.each_mut().map(|(name, file)| {
            let file = file.take();
            file.map(|file| read(name, &file)).transpose()
        });
        let client = match (certificate?, key?) {
            (Some(certificate), Some(key)) => Some(ClientPem { certificate, key }),
            (None, None) => None,
            _ => {
                return Err(invalid(format!(
                    "{CLIENT_CERT_FILE} and {CLIENT_KEY_FILE} go together"
                )));
            }
        };
        Ok(Some(Self { ca: ca?, client }))
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
    Error::new(ErrorKind::Invalid, format!("not a store URL: {what}"))
}

impl fmt::Debug for PemFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemFiles").finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientPem").finish_non_exhaustive()
    }
}

/// TLS by rustls, for stores whose driver takes its settings.
#[cfg(feature = "rustls")]
mod settings {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, RootCertStore};

    use super::{CA_FILE, CLIENT_CERT_FILE, CLIENT_KEY_FILE, PemFiles, invalid};
    use crate::error::{Error, Result};

    impl PemFiles {
        /// The settings of a client that trusts the CAs named here, or else the system's. With ring, whatever the
        /// process has chosen elsewhere, or not chosen.
        ///
        /// # Errors
        /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what is no certificate, no CA or no key, or where
        /// the system trusts no CA.
        pub fn client_config(&self) -> Result<ClientConfig> {
            let config = builder()?.with_root_certificates(self.roots()?);
            let Some(client) = &self.client else {
                return Ok(config.with_no_client_auth());
            };
            let chain = certificates(CLIENT_CERT_FILE, &client.certificate)?;
            let key = PrivateKeyDer::from_pem_slice(&client.key)
                .map_err(|error| unusable(CLIENT_KEY_FILE).because(error))?;
            config.with_client_auth_cert(chain, key).map_err(|error| {
                invalid(format!(
                    "{CLIENT_CERT_FILE} and {CLIENT_KEY_FILE} don't belong together"
                ))
                .because(error)
            })
        }

        fn roots(&self) -> Result<RootCertStore> {
            let trusted = match &self.ca {
                Some(pem) => certificates(CA_FILE, pem)?,
                None => rustls_native_certs::load_native_certs().certs,
            };
            let mut roots = RootCertStore::empty();
            // The system may have some that this library can't read.
            let (added, ignored) = roots.add_parsable_certificates(trusted);
            match self.ca {
                Some(_) if ignored > 0 => Err(unusable(CA_FILE)),
                None if added == 0 => Err(invalid(format!(
                    "the system trusts no CA; name one with ?{CA_FILE}=…"
                ))),
                _ => Ok(roots),
            }
        }
    }

    /// The settings of a client that trusts nobody, for a driver that wants some where no TLS is spoken.
    ///
    /// # Errors
    /// Where rustls can't be set up at all.
    pub fn trusting_nobody() -> Result<ClientConfig> {
        let roots = RootCertStore::empty();
        Ok(builder()?
            .with_root_certificates(roots)
            .with_no_client_auth())
    }

    fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("TLS can't be set up".into()).because(error))
    }

    /// The certificates in a file; at least one.
    fn certificates(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
        let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let found = found.map_err(|error| unusable(name).because(error))?;
        if found.is_empty() {
            return Err(unusable(name));
        }
        Ok(found)
    }

    fn unusable(name: &str) -> Error {
        invalid(format!(
            "what {name} names can't be used; does it hold what its name says, in PEM form?"
        ))
    }
}

#[cfg(feature = "rustls")]
pub use settings::trusting_nobody;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(url: &str) -> Result<Option<PemFiles>> {
        PemFiles::take(&mut StoreUrl::parse(url)?, &["etcds", "consuls"])
    }

    #[test]
    fn files_are_for_tls_and_must_be_there() {
        assert_eq!(taken("etcd://h").unwrap(), None);
        assert_eq!(taken("etcds://h").unwrap(), Some(PemFiles::default()));
        for (url, says) in [
            ("etcd://h?ca-file=/c.pem", "etcds://, consuls://"),
            ("etcds://h?ca-file=/nowhere/ca.pem", "can't be read"),
            ("etcds://h?ca-file=/etc/passwd", "nothing in PEM form"),
            ("etcds://h?client-cert-file=/nowhere/c.pem", "can't be read"),
        ] {
            let error = taken(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let file = std::env::temp_dir().join(format!("pem-{}", std::process::id()));
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\n").unwrap();
        let url = format!("etcds://h?client-cert-file={}", file.display());
        let error = taken(&url).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(error.to_string().contains("go together"), "{error}");
    }
}
