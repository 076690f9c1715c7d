//! How few sessions do for how many locks and waiters.

use crate::common::*;
use leasehold::Release;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_held_locks_share_a_session() {
    let postgres = server();
    let client = connect(&postgres.url()).await;
    let held = hold_many(&client, 500, LONG).await;
    assert_eq!(holding(&postgres, true).len(), 1);
    assert!(sessions(&postgres) <= 2, "{}", sessions(&postgres));
    // Of another TTL they have another.
    let other = take(&client, "other", LONG * 2).await;
    assert_eq!(holding(&postgres, true).len(), 2);
    other.release().await.unwrap();
    for guard in held {
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
    }
    assert!(holding(&postgres, true).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_of_one_process_wait_on_one_session_and_all_are_served() {
    let postgres = server();
    let client = connect(&postgres.url()).await;
    let other = connect(&postgres.url()).await;
    let theirs = take(&other, "x", LONG).await;
    let waiters: Vec<_> = (0..1000)
        .map(|_| {
            let lock = lock(&client, "x", LONG);
            tokio::spawn(async move { lock.acquire().await?.release().await })
        })
        .collect();
    queued(&other, "x", 1).await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(holding(&postgres, false).len(), 1);
    theirs.release().await.unwrap();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().unwrap(), Release::Freed);
    }
    assert!(sessions(&postgres) <= 6, "{}", sessions(&postgres));
}

/// Sixteen wait on sessions of their own; the rest looks once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_many_names_takes_few_sessions_and_no_one_is_forgotten() {
    let postgres = server();
    let client = connect(&postgres.url()).await;
    let other = connect(&postgres.url()).await;
    let theirs = hold_many(&other, 30, LONG).await;
    let waiters: Vec<_> = (0..30)
        .map(|at| {
            let lock = lock(&client, &format!("held/{at}"), LONG);
            tokio::spawn(async move { lock.acquire_within(LONG).await })
        })
        .collect();
    until(SLACK, async || holding(&postgres, false).len() == 16).await;
    tokio::time::sleep(ms(500)).await;
    assert_eq!(holding(&postgres, false).len(), 16);
    for guard in theirs {
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        let guard = waiter.await.unwrap().unwrap().expect("served");
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_but_the_counters() {
    let postgres = server();
    come_and_go(connect(&postgres.url()).await).await;
    until(SLACK, async || sessions(&postgres) == 0).await;
    let rows = "SELECT name FROM leasehold.locks ORDER BY 1";
    assert_eq!(postgres.query(rows).unwrap(), "a\nb");
}
