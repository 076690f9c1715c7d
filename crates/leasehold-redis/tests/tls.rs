//! TLS: whose certificate is trusted, and whose is shown.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{LONG, connect, everything, lock, queued, take};
use leasehold::ErrorKind;
use leasehold_testkit::servers::{Redis, RedisCluster, RedisEdition, RedisSentinel, TlsFiles};

/// A CA of one's own with what it has signed, in a folder.
struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let authority = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let subject = ["-x509", "-subj", "/CN=test CA", "-days", "2"];
        authority.openssl(
            &[
                &["req"],
                NEW_KEY,
                &subject,
                &["-keyout", "ca.key", "-out", "ca.crt"],
            ]
            .concat(),
        );
        for (name, extensions) in [
            ("server", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            ("client", "extendedKeyUsage=clientAuth"),
        ] {
            let (key, request, cert) = (
                format!("{name}.key"),
                format!("{name}.csr"),
                format!("{name}.crt"),
            );
            let file = format!("{name}.ext");
            std::fs::write(authority.path(&file), extensions).unwrap();
            let subject = format!("/CN={name}");
            authority.openssl(
                &[
                    &["req"],
                    NEW_KEY,
                    &["-subj", &subject, "-keyout", &key, "-out", &request],
                ]
                .concat(),
            );
            authority.openssl(&[
                "x509",
                "-req",
                "-in",
                &request,
                "-CA",
                "ca.crt",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "2",
                "-extfile",
                &file,
                "-out",
                &cert,
            ]);
        }
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, args: &[&str]) {
        let made = Command::new("openssl")
            .args(args)
            .current_dir(&self.folder)
            .output();
        let made = made.unwrap_or_else(|error| {
            panic!("the test's certificates need the command openssl: {error}")
        });
        assert!(
            made.status.success(),
            "openssl {args:?}: {}",
            String::from_utf8_lossy(&made.stderr)
        );
    }

    /// What a server is given.
    fn files(&self) -> TlsFiles {
        TlsFiles {
            ca: self.path("ca.crt"),
            cert: self.path("server.crt"),
            key: self.path("server.key"),
        }
    }

    /// The parameters of a client that trusts the CA.
    fn trusting(&self) -> String {
        format!("ca-file={}", self.path("ca.crt").display())
    }

    /// The parameters of a client that shows a certificate besides.
    fn showing(&self) -> String {
        let [cert, key] = ["client.crt", "client.key"].map(|name| self.path(name));
        format!(
            "{}&client-cert-file={}&client-key-file={}",
            self.trusting(),
            cert.display(),
            key.display()
        )
    }

    /// A server that speaks TLS alone besides its plain port.
    fn server(&self, wants_certificate: &str) -> (Redis, u16) {
        for _ in 0..20 {
            let port = std::net::TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            let [ca, cert, key] =
                ["ca.crt", "server.crt", "server.key"].map(|name| self.path(name));
            let text = |path: &Path| path.display().to_string();
            let started = Redis::start_with(
                RedisEdition::Redis7,
                &[
                    "--tls-port",
                    &port.to_string(),
                    "--tls-cert-file",
                    &text(&cert),
                    "--tls-key-file",
                    &text(&key),
                    "--tls-ca-cert-file",
                    &text(&ca),
                    "--tls-auth-clients",
                    wants_certificate,
                ],
            );
            match started {
                Ok(server) => return (server, port),
                Err(error) => assert!(error.to_string().contains("listening"), "{error}"),
            }
        }
        panic!("no port for TLS");
    }
}

const NEW_KEY: &[&str] = &[
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
];

fn install_cryptography() {
    // Another test of this process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_to_a_ca_that_is_named_works_and_to_one_that_is_not_is_refused() {
    install_cryptography();
    let ours = Authority::new();
    let other = Authority::new();
    let (_server, port) = ours.server("no");
    let at = |host: &str, ca: Option<&Authority>| match ca {
        Some(ca) => format!(
            "rediss://{host}:{port}?ca-file={}",
            ca.path("ca.crt").display()
        ),
        None => format!("rediss://{host}:{port}"),
    };
    for host in ["localhost", "127.0.0.1"] {
        let client = connect(&at(host, Some(&ours))).await;
        everything(&client).await.unwrap();
        let client = connect(&at(host, Some(&ours))).await;
        let held = take(&client, "x", LONG).await;
        let next = lock(&client, "x", LONG);
        let next = tokio::spawn(async move { next.acquire().await.unwrap() });
        queued(&client, "x", 1).await;
        drop(held);
        drop(next.await.unwrap());
        for untrusted in [at(host, None), at(host, Some(&other))] {
            let error = leasehold::connect(&untrusted).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("ca-file"), "{error}");
        }
    }
    // A name that the certificate doesn't have.
    let error = leasehold::connect(&at("127.0.0.2", Some(&ours)))
        .await
        .unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_wants_a_certificate_is_shown_one() {
    install_cryptography();
    let ours = Authority::new();
    let (_server, port) = ours.server("yes");
    let ca = format!("rediss://localhost:{port}?{}", ours.trusting());
    let error = leasehold::connect(&ca).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let url = format!("rediss://localhost:{port}?{}", ours.showing());
    let client = connect(&url).await;
    everything(&client).await.unwrap();
    let cert = ours.path("client.crt");
    let key_as_cert = format!(
        "{ca}&client-cert-file={0}&client-key-file={0}",
        cert.display()
    );
    let error = leasehold::connect(&key_as_cert).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_their_master_are_reached_by_tls() {
    install_cryptography();
    let ours = Authority::new();
    let group =
        RedisSentinel::start_with(RedisEdition::Redis7, &[], &[], Some(&ours.files())).unwrap();
    let url = group.tls_url().unwrap();
    everything(&connect(&format!("{url}&{}", ours.showing())).await)
        .await
        .unwrap();
    for without in [url.clone(), format!("{url}&{}", ours.trusting())] {
        let error = leasehold::connect(&without).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_of_a_cluster_is_reached_by_tls() {
    install_cryptography();
    let ours = Authority::new();
    let cluster = RedisCluster::start_with(RedisEdition::Redis7, &[], Some(&ours.files())).unwrap();
    let url = cluster.tls_url().unwrap();
    let client = connect(&format!("{url}?{}", ours.showing())).await;
    // Their names are in slots of different masters.
    for name in ["a", "b", "c", "d", "e", "f"] {
        let held = take(&client, name, LONG).await;
        let next = lock(&client, name, LONG);
        let next = tokio::spawn(async move { next.acquire().await.unwrap() });
        queued(&client, name, 1).await;
        drop(held);
        next.await.unwrap().release().await.unwrap();
    }
    everything(&client).await.unwrap();
    let error = leasehold::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
