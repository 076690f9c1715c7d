//! Users, passwords, certificates.

use std::time::Duration;

use crate::common::*;
use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::{Authority, Etcd, EtcdEdition, TlsFiles};

const PASSWORD: &str = "canary-7f3a";

/// A server that asks for a password; `locker` has the roles that the README gives.
fn guarded(edition: EtcdEdition) -> Etcd {
    // Tokens end after two seconds.
    let etcd = Etcd::start_with(edition, 1, &["--auth-token-ttl", "2"]).unwrap();
    for words in [
        &["user", "add", "root:rootpw"] as &[&str],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "locker:canary-7f3a"],
        &["user", "add", "stranger:canary-7f3a"],
        &["role", "add", "locks"],
        &[
            "role",
            "grant-permission",
            "locks",
            "--prefix=true",
            "readwrite",
            "locks/",
        ],
        &[
            "role",
            "grant-permission",
            "locks",
            "--prefix=true",
            "readwrite",
            "leasehold:",
        ],
        &["user", "grant-role", "locker", "locks"],
        &["auth", "enable"],
    ] {
        ctl(&etcd, words);
    }
    etcd
}

fn url(etcd: &Etcd, login: &str) -> String {
    format!("etcd://{login}{}?prefix=locks/", etcd.address(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_smallest_role_is_enough_and_tokens_are_renewed() {
    for edition in EtcdEdition::ALL {
        let mut etcd = guarded(edition);
        let client = connect(&url(&etcd, &format!("locker:{PASSWORD}@"))).await;
        let holder = take(&client, "x", Duration::from_secs(6)).await;
        let waiting = lock(&client, "x", LONG);
        let waiter = tokio::spawn(async move { waiting.acquire().await });
        queued(&client, "x", 1).await;
        // The token ends meanwhile; and a server that starts again has forgotten it.
        tokio::time::sleep(Duration::from_secs(7)).await;
        etcd.member(0).stop().unwrap();
        etcd.start_again(0).unwrap();
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert!(holder.is_held());
        assert_eq!(holder.release().await.unwrap(), Release::Freed);
        let next = tokio::time::timeout(SLACK, waiter).await.unwrap();
        next.unwrap().unwrap().release().await.unwrap();
        client.list("").await.unwrap();
        client.check().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_credentials_are_said_and_never_shown() {
    let etcd = guarded(EtcdEdition::Etcd35);
    for (login, says) in [
        ("locker:canary-wrong@", "refuses the user or the password"),
        ("nobody:canary-7f3a@", "refuses the user or the password"),
        ("stranger:canary-7f3a@", "lacks a right"),
        ("", "wants a user and a password"),
    ] {
        let error = leasehold::connect(&url(&etcd, login)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{login}: {error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(says) && !text.contains("canary"), "{text}");
    }
    // A right that lacks for this name alone.
    let client = leasehold::connect(&url(&etcd, "locker:canary-7f3a@").replace("locks/", ""))
        .await
        .unwrap();
    let error = lock(&client, "other", LONG)
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_where_none_is_asked_for_does_no_harm() {
    let etcd = single();
    let client = connect(&url(&etcd, "locker:canary@")).await;
    take(&client, "x", LONG).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_on_both_sides() {
    let authority = Authority::new().unwrap();
    let TlsFiles { ca, cert, key } = authority.server();
    let [ca, cert, key] = [ca, cert, key].map(|file| file.display().to_string());
    let files = ["--cert-file", &cert, "--key-file", &key];
    let clients = ["--client-cert-auth", "--trusted-ca-file", &ca];
    let args = [&files[..], &clients].concat();
    let etcd = Etcd::start_with(EtcdEdition::Etcd35, 1, &args).unwrap();
    let whole = format!("{}?{}", etcd.url(), authority.showing());
    let client = connect(&whole).await;
    let holder = take(&client, "x", ms(2000)).await;
    tokio::time::sleep(ms(3000)).await;
    assert_eq!(holder.release().await.unwrap(), Release::Freed);

    let untrusted = leasehold::connect(&etcd.url()).await.unwrap_err();
    assert!(
        untrusted.to_string().contains("isn't trusted"),
        "{untrusted}"
    );
    let unknown = leasehold::connect(&format!("{}?{}", etcd.url(), authority.trusting())).await;
    assert!(
        unknown.is_err(),
        "a client without a certificate was let in"
    );
    let other = Authority::new().unwrap();
    let foreign = format!("{}?{}", etcd.url(), other.trusting());
    let foreign = leasehold::connect(&foreign).await.unwrap_err();
    assert!(foreign.to_string().contains("isn't trusted"), "{foreign}");
    // A name that the certificate doesn't have.
    let elsewhere = whole.replace("127.0.0.1", "127.0.0.2");
    assert!(leasehold::connect(&elsewhere).await.is_err());
    // Without TLS it gets nowhere.
    let plain = format!("etcd://{}", etcd.address(0));
    assert!(leasehold::connect(&plain).await.is_err());
}
