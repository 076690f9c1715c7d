//! TLS: whose certificate is trusted, and whose is shown.

use crate::common::{LONG, connect, everything, lock, queued, take};
use leasehold::ErrorKind;
use leasehold_testkit::servers::{
    Authority, Redis, RedisCluster, RedisEdition, RedisSentinel, TlsFiles,
};

/// A server that speaks TLS besides its plain port.
fn server(authority: &Authority, wants_certificate: &str) -> (Redis, u16) {
    let TlsFiles { ca, cert, key } = authority.server();
    let [ca, cert, key] = [ca, cert, key].map(|file| file.display().to_string());
    for _ in 0..20 {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let started = Redis::start_with(
            RedisEdition::Redis7,
            &[
                "--tls-port",
                &port.to_string(),
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &key,
                "--tls-ca-cert-file",
                &ca,
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

fn install_cryptography() {
    // Another test of this process may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_to_a_ca_that_is_named_works_and_to_one_that_is_not_is_refused() {
    install_cryptography();
    let ours = Authority::new().unwrap();
    let other = Authority::new().unwrap();
    let (_server, port) = server(&ours, "no");
    let at = |host: &str, ca: Option<&Authority>| match ca {
        Some(ca) => format!("rediss://{host}:{port}?{}", ca.trusting()),
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
    let ours = Authority::new().unwrap();
    let (_server, port) = server(&ours, "yes");
    let ca = format!("rediss://localhost:{port}?{}", ours.trusting());
    let error = leasehold::connect(&ca).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let url = format!("rediss://localhost:{port}?{}", ours.showing());
    let client = connect(&url).await;
    everything(&client).await.unwrap();
    let cert_as_key = url.replace("client.key", "client.crt");
    let error = leasehold::connect(&cert_as_key).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_their_master_are_reached_by_tls() {
    install_cryptography();
    let ours = Authority::new().unwrap();
    let group =
        RedisSentinel::start_with(RedisEdition::Redis7, &[], &[], Some(&ours.server())).unwrap();
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
    let ours = Authority::new().unwrap();
    let cluster =
        RedisCluster::start_with(RedisEdition::Redis7, &[], Some(&ours.server())).unwrap();
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
