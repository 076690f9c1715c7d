//! Tokens and certificates.

use crate::common::*;
use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::{Authority, Consul};

const MASTER: &str = "11111111-aaaa-bbbb-cccc-111111111111";
const LOCKER: &str = "22222222-aaaa-bbbb-cccc-222222222222";
const STRANGER: &str = "33333333-aaaa-bbbb-cccc-333333333333";

/// A server that lets nobody in without a token; `LOCKER` has the policy that the README gives.
fn guarded() -> Consul {
    let consul = Consul::start_guarded(MASTER).unwrap();
    let put = |path: &str, body: &str| {
        consul.call(0, "PUT", path, body).unwrap();
    };
    put(
        "/v1/acl/policy",
        r#"{"Name":"locks","Rules":"key_prefix \"locks/\" { policy = \"write\" } session_prefix \"\" { policy = \"write\" }"}"#,
    );
    put(
        "/v1/acl/policy",
        r#"{"Name":"sessions","Rules":"session_prefix \"\" { policy = \"write\" }"}"#,
    );
    for (token, policy) in [(LOCKER, "locks"), (STRANGER, "sessions")] {
        put(
            "/v1/acl/token",
            &format!(r#"{{"SecretID":"{token}","Policies":[{{"Name":"{policy}"}}]}}"#),
        );
    }
    consul
}

fn url(consul: &Consul, token: &str) -> String {
    format!("consul://{token}{}?prefix=locks/", consul.address(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_smallest_policy_is_enough() {
    let consul = guarded();
    let client = connect(&url(&consul, &format!(":{LOCKER}@"))).await;
    let holder = take(&client, "x", LONG / 6).await;
    let waiting = lock(&client, "x", LONG);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    tokio::time::sleep(LONG / 6 + ms(2000)).await;
    assert!(holder.is_held());
    holder.extend(LONG).await.unwrap();
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    let next = tokio::time::timeout(SLACK, waiter).await.unwrap();
    let next = next.unwrap().unwrap();
    assert_eq!(client.list("").await.unwrap().len(), 1);
    client.break_hold("x", None).await.unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Expired);
    client.check().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_tokens_are_said_and_never_shown() {
    let consul = guarded();
    // An unknown one shows at once.
    let unknown = url(&consul, ":44444444-aaaa-bbbb-cccc-444444444444@");
    let error = leasehold::connect(&unknown).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error:?}");
    assert!(
        !format!("{error} {error:?}").contains("44444444"),
        "{error}"
    );
    for (token, name) in [
        // It may make sessions and write no key.
        (format!(":{STRANGER}@"), "x"),
        // None.
        (String::new(), "x"),
    ] {
        let client = connect(&url(&consul, &token)).await;
        let error = lock(&client, name, LONG).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("33333333"), "{text}");
    }
    // What may not be read isn't free.
    let holder = take(
        &connect(&url(&consul, &format!(":{LOCKER}@"))).await,
        "x",
        LONG,
    )
    .await;
    for token in [format!(":{STRANGER}@"), String::new()] {
        let client = connect(&url(&consul, &token)).await;
        let errors = [
            client.inspect("x").await.unwrap_err(),
            client.list("").await.unwrap_err(),
            client.break_hold("x", None).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error:?}");
        }
    }
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    // A right that lacks for this name alone.
    let everywhere = url(&consul, &format!(":{LOCKER}@")).replace("locks/", "");
    let client = connect(&everywhere).await;
    let error = lock(&client, "other", LONG)
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error:?}");
    take(&client, "locks/x", LONG)
        .await
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_on_both_sides() {
    let authority = Authority::new().unwrap();
    let consul = Consul::start_with(1, SHORT_TTLS, Some(&authority.server())).unwrap();
    let whole = format!("{}?{}", consul.tls_url(), authority.showing());
    let client = connect(&whole).await;
    let holder = take(&client, "x", ms(2000)).await;
    tokio::time::sleep(ms(5000)).await;
    assert_eq!(holder.release().await.unwrap(), Release::Freed);

    let untrusted = leasehold::connect(&consul.tls_url()).await.unwrap_err();
    assert!(
        untrusted.to_string().contains("isn't trusted"),
        "{untrusted}"
    );
    let unknown =
        leasehold::connect(&format!("{}?{}", consul.tls_url(), authority.trusting())).await;
    assert!(
        unknown.is_err(),
        "a client without a certificate was let in"
    );
    let other = Authority::new().unwrap();
    let foreign = format!("{}?{}", consul.tls_url(), other.trusting());
    let foreign = leasehold::connect(&foreign).await.unwrap_err();
    assert!(foreign.to_string().contains("isn't trusted"), "{foreign}");
    // A name that the certificate doesn't have.
    let elsewhere = whole.replace("127.0.0.1", "127.0.0.2");
    assert!(leasehold::connect(&elsewhere).await.is_err());
    // Without TLS it gets nowhere.
    let plain = consul.tls_url().replace("consuls:", "consul:");
    assert!(leasehold::connect(&plain).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_locks_of_another_datacenter_are_its_own() {
    let here = single();
    let there =
        Consul::start_with(1, r#""datacenter":"dc2","session_ttl_min":"2s""#, None).unwrap();
    here.join(&there).unwrap();
    let client = connect(&format!("{}?datacenter=dc2", here.url())).await;
    // Until they have found each other.
    until(SLACK * 4, async || client.inspect("x").await.is_ok()).await;
    let holder = take(&client, "x", ms(2000)).await;
    tokio::time::sleep(ms(5000)).await;
    assert!(holder.is_held());
    let direct = connect(&there.url()).await;
    assert_busy(&direct, "x").await;
    let elsewhere = take(&connect(&here.url()).await, "x", LONG).await;
    elsewhere.release().await.unwrap();
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    let nowhere = format!("{}?datacenter=dc3", here.url());
    let nowhere = leasehold::connect(&nowhere).await;
    assert!(nowhere.is_err(), "{nowhere:?}");
}

/// A server that sends its clients elsewhere gets no lock's request sent there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirection_is_refused() {
    use std::io::{Read as _, Write as _};
    let consul = single();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let to = consul.address(0);
    std::thread::spawn(move || {
        for stream in listener.incoming().take(8) {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            let text = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = text.split(' ').nth(1).unwrap_or("/");
            let reply = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{to}{path}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(reply.as_bytes()).unwrap();
        }
    });
    let error = leasehold::connect(&format!("consul://{address}")).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("elsewhere"), "{error}");
}
