//! Users, chroots, certificates.

use crate::common::*;
use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::{Authority, Direction, Proxy, ZooKeeper};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_made_is_no_one_elses_and_passwords_are_never_shown() {
    let zookeeper = single();
    let host = zookeeper.address(0);
    let url = |login: &str| format!("zookeeper://{login}{host}?prefix=locks/");
    let client = connect(&url("me:canary-1@")).await;
    let holder = take(&client, "x", LONG).await;
    let same = connect(&url("me:canary-1@")).await;
    assert_busy(&same, "x").await;
    for login in ["me:canary-2@", "you:canary-1@", ""] {
        let other = connect(&url(login)).await;
        let error = lock(&other, "x", LONG).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{login}: {error:?}");
        let text = format!("{error} {error:?} {other:?}");
        assert!(!text.contains("canary"), "{text}");
    }
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_user_keeps_to_himself_hides_no_other_lock() {
    let zookeeper = single();
    let url = |login: &str| format!("zookeeper://{login}{}", zookeeper.address(0));
    let theirs = connect(&url("me:canary-1@")).await;
    let _theirs = take(&theirs, "theirs/x", LONG).await;
    let client = connect(&url("")).await;
    let _ours = take(&client, "ours/y", LONG).await;
    let listed = client.list("").await.unwrap();
    let names: Vec<&str> = listed.iter().map(|lock| lock.name.as_str()).collect();
    assert_eq!(names, ["ours/y"]);
    // What was asked for is another thing.
    for prefix in ["theirs/", "theirs/x"] {
        let error = client.list(prefix).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chroot_is_before_every_name_and_must_be_there() {
    let zookeeper = single();
    let root = connect(&zookeeper.url()).await;
    let below = format!("{}/apps/one", zookeeper.url());
    let error = leasehold::connect(&below).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("/apps/one"), "{error}");
    let holder = take(&root, "apps/one/jobs/x", LONG).await;
    let client = connect(&below).await;
    assert_busy(&client, "jobs/x").await;
    let listed = client.list("jo").await.unwrap();
    assert_eq!(listed[0].name.as_str(), "jobs/x");
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    let holder = take(&client, "jobs/x", LONG).await;
    assert_busy(&root, "apps/one/jobs/x").await;
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_or_silent_is_passed_over() {
    let zookeeper = single();
    let silent = Proxy::start(zookeeper.address(0)).unwrap();
    for direction in Direction::BOTH {
        silent.freeze(direction);
    }
    let url = format!(
        "zookeeper://127.0.0.1:9,{},{}",
        silent.address(),
        zookeeper.address(0)
    );
    let client = connect(&url).await;
    take(&client, "x", LONG).await.release().await.unwrap();
    let error = leasehold::connect("zookeeper://127.0.0.1:9")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let findings = client.check().await.unwrap();
    assert!(
        findings
            .iter()
            .any(|found| found.what.contains("1 voting server")),
        "{findings:?}"
    );
    assert!(
        findings
            .iter()
            .any(|found| found.what.contains("is ZooKeeper 3.8")),
        "{findings:?}"
    );
    assert!(
        findings
            .iter()
            .any(|found| found.what.contains("gives no answer")),
        "{findings:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_kind_of_server_is_an_error_that_says_so() {
    // One that waits for the client to speak, and answers in lines.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let error = leasehold::connect(&format!("zookeeper://{address}"))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("doesn't speak as ZooKeeper does"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_on_both_sides() {
    let authority = Authority::new().unwrap();
    let zookeeper = ZooKeeper::start_with(1, &[], Some(&authority.server())).unwrap();
    let whole = format!("{}?{}", zookeeper.url(), authority.showing());
    let client = connect(&whole).await;
    let holder = take(&client, "x", ms(2000)).await;
    tokio::time::sleep(ms(3000)).await;
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    let findings = client.check().await.unwrap();
    assert!(
        findings
            .iter()
            .any(|found| found.what.contains("is ZooKeeper 3.8")),
        "{findings:?}"
    );

    let other = Authority::new().unwrap();
    let foreign = format!("{}?{}", zookeeper.url(), other.trusting());
    let foreign = leasehold::connect(&foreign).await.unwrap_err();
    assert!(
        foreign.to_string().contains("can't be trusted"),
        "{foreign}"
    );
    let unknown =
        leasehold::connect(&format!("{}?{}", zookeeper.url(), authority.trusting())).await;
    assert!(
        unknown.is_err(),
        "a client without a certificate was let in"
    );
    // A name that the certificate doesn't have.
    let elsewhere = whole.replace("127.0.0.1", "127.0.0.2");
    assert!(leasehold::connect(&elsewhere).await.is_err());
}
