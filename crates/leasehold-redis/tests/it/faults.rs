//! Networks that break and servers that stop: what holders and waiters make of it.

use std::time::Duration;

use crate::common::{
    LONG, Raw, SLACK, assert_busy, connect, durable_server, lock, ms, proxied, queued, server,
    since, take, until, url_of,
};
use leasehold::{Client, ErrorKind, Guard, HoldState, LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{Direction, Proxy, Redis};

const TTL: Duration = Duration::from_secs(3);

/// Waits until the hold has been renewed after an outage.
async fn renewed(guard: &Guard) {
    until(SLACK, async || {
        guard.state() == HoldState::Held && guard.remaining() > TTL * 3 / 4
    })
    .await;
}

/// Nothing came of an outage: still held after more than a TTL, and nobody else got in.
async fn untouched(server: &Redis, guard: Guard) {
    let other = connect(&server.url()).await;
    let begun = clock::now();
    while since(begun) < TTL + ms(200) {
        assert!(guard.is_held(), "{guard:?}");
        assert_busy(&other, "a").await;
        tokio::time::sleep(ms(50)).await;
    }
    until(SLACK, async || guard.state() == HoldState::Held).await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_shorter_than_the_lease_costs_nothing() {
    let (server, mut proxy) = proxied();
    let client = connect(&url_of(proxy.address())).await;
    let guard = take(&client, "a", TTL).await;
    for _ in 0..3 {
        proxy.refuse();
        tokio::time::sleep(ms(900)).await;
        proxy.accept().unwrap();
        renewed(&guard).await;
    }
    untouched(&server, guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_frozen_for_less_than_the_lease_costs_nothing() {
    let server = server();
    let client = connect(&server.url()).await;
    let guard = take(&client, "a", TTL).await;
    for _ in 0..2 {
        server.freeze().unwrap();
        tokio::time::sleep(ms(1500)).await;
        server.thaw().unwrap();
        renewed(&guard).await;
    }
    untouched(&server, guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_server_stopped_or_killed_and_started_again_keeps_the_hold() {
    let mut server = durable_server();
    let client = connect(&server.url()).await;
    let guard = take(&client, "a", TTL).await;
    let token = guard.token();
    server.stop().unwrap();
    server.start_again().unwrap();
    renewed(&guard).await;
    server.kill().unwrap();
    server.start_again().unwrap();
    renewed(&guard).await;
    untouched(&server, guard).await;
    let other = connect(&server.url()).await;
    assert!(take(&other, "a", TTL).await.token() > token);
}

/// Cuts a holder off for good in one way; it must stop to believe by itself, before the next one is granted.
async fn cut_off_in_one_way(cut: impl FnOnce(&mut Proxy)) {
    let (server, mut proxy) = proxied();
    let client = connect(&url_of(proxy.address())).await;
    let ttl = TTL;
    let guard = take(&client, "a", ttl).await;
    let next = connect(&server.url()).await;
    let next = lock(&next, "a", LONG);
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    // It is renewed while it can be.
    tokio::time::sleep(ttl * 4 / 3).await;
    assert!(guard.is_held() && !next.is_finished());
    let begun = clock::now();
    cut(&mut proxy);
    let held = guard.held();
    let believer = tokio::spawn(async move { (held.lost().await, since(begun)) });
    let next = next.await.unwrap();
    assert!(!guard.is_held(), "two holders");
    let (reason, told) = believer.await.unwrap();
    assert_eq!(reason, Some(LossReason::Unreachable));
    // Not at the first unanswered renewal either: the lease was good until then.
    assert!(told > ttl / 3 && told < ttl + SLACK, "told after {told:?}");
    assert!(next.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_longer_than_the_lease_is_told_at_the_deadline() {
    cut_off_in_one_way(|proxy| proxy.refuse()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_answers_no_more_is_told_at_the_deadline() {
    cut_off_in_one_way(|proxy| proxy.freeze(Direction::ToServer)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_arrive_no_more_end_the_hold_though_the_server_renews_it() {
    // The server may have taken one last renewal; the holder counts on none without an answer.
    cut_off_in_one_way(|proxy| proxy.freeze(Direction::ToClient)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_frozen_past_the_lease_gives_no_late_grant() {
    let server = server();
    let client = connect(&server.url()).await;
    let other = connect(&server.url()).await;
    let ttl = ms(800);
    let guard = take(&client, "a", ttl).await;
    let waiter = lock(&other, "a", LONG);
    let waiter = tokio::spawn(async move { waiter.acquire().await.unwrap() });
    queued(&client, "a", 1).await;
    server.freeze().unwrap();
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    tokio::time::sleep(ttl * 2).await;
    assert!(!waiter.is_finished());
    server.thaw().unwrap();
    let next = waiter.await.unwrap();
    assert!(!guard.is_held() && next.token() > guard.token());
    // What it answers now to renewals of the old hold doesn't touch the new one.
    tokio::time::sleep(ttl * 2).await;
    assert!(next.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Another);
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

/// A client behind a proxy whose scripts the server knows, so that the next answer is that to a script.
async fn warm(proxy: &Proxy) -> Client {
    let client = connect(&url_of(proxy.address())).await;
    take(&client, "warm", LONG).await.release().await.unwrap();
    client
}

/// What the next try comes to when its connection is new and is cut at this byte.
async fn try_cut(
    proxy: &Proxy,
    direction: Direction,
    bytes: usize,
    ttl: Duration,
) -> (Client, leasehold::Result<Option<Guard>>) {
    let client = connect(&url_of(proxy.address())).await;
    // The one it has is found to be broken: it is made anew, and that one is cut.
    proxy.cut();
    until(SLACK, async || proxy.connections() == 0).await;
    proxy.cut_after(direction, bytes);
    let tried = lock(&client, "a", ttl).try_acquire().await;
    (client, tried)
}

#[tokio::test(flavor = "multi_thread")]
async fn try_cut_anywhere_is_held_or_not_and_leaves_nothing() {
    let (server, proxy) = proxied();
    take(&connect(&server.url()).await, "a", LONG)
        .await
        .release()
        .await
        .unwrap();
    let other = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    let mut ambiguous = 0;
    let cuts = (0..260)
        .step_by(13)
        .map(|bytes| (Direction::ToClient, bytes));
    for (direction, bytes) in cuts.chain([(Direction::ToServer, 0), (Direction::ToServer, 250)]) {
        let (client, tried) = try_cut(&proxy, direction, bytes, LONG).await;
        match tried {
            Ok(guard) => {
                let guard = guard.unwrap();
                assert_busy(&other, "a").await;
                proxy.cut_after(direction, usize::MAX);
                assert_eq!(guard.release().await.unwrap(), Release::Freed);
            }
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                ambiguous += u32::from(error.kind() == ErrorKind::Ambiguous);
            }
        }
        // What is left is released long before its TTL, and until that is certain.
        client.close().await;
        proxy.cut_after(direction, usize::MAX);
        assert!(!raw.ask::<bool>(&["EXISTS", "a"]), "{direction:?} {bytes}");
    }
    assert!(ambiguous >= 1, "no answer to a try was cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_cut_try_after_twice_its_ttl() {
    let (server, proxy) = proxied();
    let mut raw = Raw::to(&server);
    for bytes in (0..200).step_by(40) {
        let (client, _) = try_cut(&proxy, Direction::ToClient, bytes, ms(500)).await;
        client.close().await;
        proxy.cut_after(Direction::ToClient, usize::MAX);
    }
    // The note of a release stays for twice the TTL.
    until(ms(1000) + SLACK, async || raw.keys() == ["leasehold:f:{a}"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connection_that_broke_costs_no_call() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    // Idle: it has seen the end when the next request is made. One that is sent at that very moment may be lost unsent in
    // the driver, and is unanswered.
    let mut kill = || {
        raw.ask::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        std::thread::sleep(ms(50));
    };
    kill();
    let guard = take(&client, "a", LONG).await;
    kill();
    assert_busy(&client, "a").await;
    kill();
    guard.extend(LONG).await.unwrap();
    kill();
    client.inspect("a").await.unwrap();
    kill();
    client.list("").await.unwrap();
    kill();
    client.check().await.unwrap();
    kill();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn release_cut_anywhere_is_confirmed_or_goes_on() {
    let (server, proxy) = proxied();
    let mut raw = Raw::to(&server);
    let mut ambiguous = 0;
    for bytes in (0..200).step_by(10) {
        let client = connect(&url_of(proxy.address())).await;
        let guard = take(&client, "a", LONG).await;
        proxy.cut();
        until(SLACK, async || proxy.connections() == 0).await;
        proxy.cut_after(Direction::ToClient, bytes);
        match guard.release().await {
            Ok(outcome) => assert_eq!(outcome, Release::Freed),
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                ambiguous += u32::from(error.kind() == ErrorKind::Ambiguous);
            }
        }
        client.close().await;
        proxy.cut_after(Direction::ToClient, usize::MAX);
        assert!(!raw.ask::<bool>(&["EXISTS", "a"]), "{bytes}");
    }
    assert!(ambiguous >= 1, "no answer to a release was cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_to_a_renewal_cut_costs_nothing() {
    let (server, proxy) = proxied();
    let client = warm(&proxy).await;
    let guard = take(&client, "a", TTL).await;
    let begun = Raw::to(&server).ask::<String>(&["INFO", "stats"]);
    for bytes in [0, 1, 3] {
        proxy.cut_after(Direction::ToClient, bytes);
        // Nothing but renewals is under way.
        tokio::time::sleep(TTL / 2).await;
    }
    let ended = Raw::to(&server).ask::<String>(&["INFO", "stats"]);
    let connections = |stats: &str| -> u64 {
        let found = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        found.unwrap().trim().parse().unwrap()
    };
    let more = connections(&ended) - connections(&begun);
    assert!(more >= 3, "{more} connections: nothing was cut");
    untouched(&server, guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn try_that_lands_after_its_release_is_refused() {
    let (server, proxy) = proxied();
    let client = warm(&proxy).await;
    // What arrives at the server is written down, to be sent again later: a network may do that.
    let mut wire = Raw::to(&server);
    let watch = std::thread::spawn({
        let address = server.address();
        move || {
            use std::io::{BufRead, BufReader, Write};
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(b"MONITOR\r\n").unwrap();
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            // The scripts' own commands are marked.
            lines
                .filter(|line| !line.contains(" lua]"))
                .find(|line| line.contains("EVALSHA") && line.contains("\"late\""))
                .unwrap()
        }
    });
    tokio::time::sleep(ms(300)).await;
    // Its answers are held back until it is given up.
    proxy.freeze(Direction::ToClient);
    let late = lock(&client, "late", LONG);
    let tried = tokio::time::timeout(ms(500), late.try_acquire()).await;
    assert!(tried.is_err(), "{tried:?}");
    proxy.thaw(Direction::ToClient);
    client.close().await;
    assert!(!wire.ask::<bool>(&["EXISTS", "late"]), "released before");
    let line = watch.join().unwrap();
    let words: Vec<String> = line
        .split_once('"')
        .unwrap()
        .1
        .trim_end_matches('"')
        .split("\" \"")
        .map(|word| word.replace("\\\"", "\""))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer: Vec<String> = wire.ask(&words);
    assert_eq!(answer, ["gone"]);
    assert!(
        !wire.ask::<bool>(&["EXISTS", "late"]),
        "taken by a late try"
    );
    // Somebody else's try is another matter.
    drop(take(&client, "late", LONG).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_flushed_between_any_two_calls_are_sent_again() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    let mut flush = || raw.ask::<()>(&["SCRIPT", "FLUSH"]);
    let guard = take(&client, "a", LONG).await;
    flush();
    assert_busy(&client, "a").await;
    flush();
    guard.extend(LONG).await.unwrap();
    flush();
    assert!(client.inspect("a").await.unwrap().holder.is_some());
    flush();
    assert_eq!(client.list("").await.unwrap().len(), 1);
    flush();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    let guard = take(&client, "a", LONG).await;
    flush();
    client.break_hold("a", None).await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_lost_its_memory_grants_again_with_a_higher_token() {
    let mut server = server();
    let client = connect(&server.url()).await;
    let guard = take(&client, "a", TTL).await;
    server.kill().unwrap();
    server.start_again().unwrap();
    let other = connect(&server.url()).await;
    let next = take(&other, "a", TTL).await;
    // Two at once, as the README says; the token tells them apart.
    assert!(next.token() > guard.token());
    assert_eq!(guard.lost().await, LossReason::Stolen);
    assert!(next.is_held());
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

/// What is dropped is released from the keeper's thread, and must not wait for the runtime that it was taken on.
#[test]
fn dropped_guard_is_released_while_its_runtime_is_blocked() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = connect(&server.url()).await;
        drop(take(&client, "a", LONG).await);
        let begun = clock::now();
        let mut look = Raw::to(&server);
        while look.ask::<bool>(&["EXISTS", "a"]) {
            assert!(since(begun) < SLACK, "still held after {:?}", since(begun));
            std::thread::sleep(ms(3));
        }
    });
}
