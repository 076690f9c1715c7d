//! What a client leaves in the store, and what its locks cost there.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use leasehold::ErrorKind;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind() {
    let consul = single();
    let client = connect(&consul.url()).await;
    come_and_go(client).await;
    assert_eq!(keys(&consul), [""; 0]);
    until(SLACK, async || sessions(&consul).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_dropped_without_a_word_leaves_nothing() {
    let consul = single();
    let client = connect(&consul.url()).await;
    take(&client, "a", LONG).await.release().await.unwrap();
    assert_eq!(sessions(&consul).len(), 1);
    drop(client);
    until(SLACK, async || sessions(&consul).is_empty()).await;
    assert_eq!(keys(&consul), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_on_one_name_never_share_a_session_and_others_do() {
    let consul = single();
    let client = connect(&consul.url()).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c", "a/b"] {
        guards.push(take(&client, name, LONG).await);
    }
    assert_eq!(sessions(&consul).len(), 1);
    let held = session_of(&consul, "a");
    // Many wait, and none keeps a session for that.
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let waiting = lock(&client, "a", LONG);
            tokio::spawn(async move {
                let guard = waiting.acquire().await.unwrap();
                guard.release().await.unwrap();
            })
        })
        .collect();
    // One on which a try had no answer in time may stay for its TTL.
    until(LONG * 2, async || sessions(&consul).len() <= 2).await;
    assert_eq!(session_of(&consul, "a"), held);
    drop(guards);
    for waiter in waiters {
        tokio::time::timeout(SLACK * 2, waiter)
            .await
            .unwrap()
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_lock_is_refused_and_left_as_it_is() {
    let consul = single();
    let client = connect(&consul.url()).await;
    let put = |path: &str, body: &str| consul.call(0, "PUT", path, body).unwrap();
    // As Consul's own semaphores have it.
    put(
        "/v1/kv/sem/.lock?flags=16210313421097356768",
        r#"{"Limit":2}"#,
    );
    put("/v1/kv/data/.lock", "somebody's");
    for name in ["sem", "data"] {
        let error = lock(&client, name, LONG).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let error = lock(&client, name, LONG).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(client.inspect(name).await.is_err());
        assert!(client.break_hold(name, None).await.is_err());
    }
    assert_eq!(client.list("").await.unwrap(), []);
    let call = |path: &str| consul.call(0, "GET", path, "").unwrap();
    assert_eq!(call("/v1/kv/data/.lock?raw"), "somebody's");
    assert_eq!(call("/v1/kv/sem/.lock?raw"), r#"{"Limit":2}"#);
}

/// Counts the requests that pass.
fn counting(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(server).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let count = count.clone();
            std::thread::spawn(move || pump(&mut from, &mut to, Some(&count)));
            let (mut from, mut to) = (server, client);
            std::thread::spawn(move || pump(&mut from, &mut to, None));
        }
    });
    (address, requests)
}

fn pump(from: &mut TcpStream, to: &mut TcpStream, count: Option<&AtomicUsize>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if let Some(count) = count {
            let mark = b" HTTP/1.1\r\n";
            let heads = bytes[..read].windows(mark.len()).filter(|at| *at == mark);
            count.fetch_add(heads.count(), Ordering::Relaxed);
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_one_request_and_so_does_its_release() {
    let consul = single();
    let (address, requests) = counting(consul.address(0));
    let client = connect(&format!("consul://{address}")).await;
    take(&client, "first", LONG).await.release().await.unwrap();
    tokio::time::sleep(ms(200)).await;
    let before = requests.load(Ordering::Relaxed);
    for _ in 0..20 {
        take(&client, "x", LONG).await.release().await.unwrap();
    }
    let made = requests.load(Ordering::Relaxed) - before;
    // A beat may have come in between.
    assert!((40..=44).contains(&made), "{made} requests for 20 pairs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_held_cost_a_few_requests_for_each_renewal() {
    const HELD: usize = 640;
    let ttl = Duration::from_secs(12);
    let consul = single();
    let (address, requests) = counting(consul.address(0));
    let client = connect(&format!("consul://{address}")).await;
    let guards = hold_many(&client, HELD, ttl).await;
    assert_eq!(sessions(&consul).len(), 1);
    // All have been renewed once.
    tokio::time::sleep(ttl / 2).await;
    let before = requests.load(Ordering::Relaxed);
    tokio::time::sleep(ttl * 2).await;
    let made = requests.load(Ordering::Relaxed) - before;
    // Four beats in each TTL, of two requests and one for each 64 held, and a few more where the machine is busy.
    assert!(made <= 8 * 12 + 40, "{made} requests in two TTLs");
    assert!(made >= 8 * 6, "only {made}: who renews?");
    assert!(guards.iter().all(leasehold::Guard::is_held));
}
