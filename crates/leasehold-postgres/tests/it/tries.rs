//! Tries that take a lock and come to no end; what a client says that has the lock itself.

use crate::common::*;
use leasehold::Release;
use leasehold_testkit::servers::{Direction, Proxy};

/// On its session a lock could be taken twice, and would be given back once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_try_without_an_answer_took_is_held_once() {
    let postgres = server();
    let proxy = Proxy::start(postgres.address()).unwrap();
    let client = connect(&url_at(proxy.address())).await;
    let direct = connect(&postgres.url()).await;
    let mut theirs = hold_many(&direct, 17, LONG).await;
    let wait = |number: usize| {
        let lock = lock(&client, &format!("held/{number}"), LONG);
        tokio::spawn(async move { lock.acquire().await })
    };
    // Sixteen wait on sessions of their own, so that the next one tries now and then.
    let waiters: Vec<_> = (0..16).map(wait).collect();
    until(SLACK, async || holding(&postgres, false).len() == 16).await;
    let waiter = wait(16);
    tokio::time::sleep(ms(1500)).await;
    proxy.freeze(Direction::ToClient);
    theirs.pop().unwrap().release().await.unwrap();
    // The next try has it, and no answer.
    seen(&direct, "held/16", |seen| {
        seen.last_token.is_some_and(|token| token.get() == 2)
    })
    .await;
    tokio::time::sleep(ms(5000)).await;
    assert!(!waiter.is_finished());
    proxy.thaw(Direction::ToClient);
    let guard = tokio::time::timeout(SLACK, waiter).await.unwrap();
    let guard = guard.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    take(&direct, "held/16", LONG)
        .await
        .release()
        .await
        .unwrap();
    for waiter in waiters {
        waiter.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_server_that_answers_is_said_to_be_busy() {
    let postgres = server();
    let client = connect(&postgres.url()).await;
    let held = take(&client, "x", LONG).await;
    assert_busy(&client, "x").await;
    postgres.freeze().unwrap();
    let refused = lock(&client, "x", LONG).try_acquire().await;
    postgres.thaw().unwrap();
    assert!(refused.is_err(), "{refused:?}");
    held.release().await.unwrap();
}
