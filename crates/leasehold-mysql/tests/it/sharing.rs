//! How few sessions do for how many locks and waiters.

use crate::common::*;
use leasehold::{Client, Release};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_held_locks_share_a_session() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let held = hold_many(&client, 300, LONG).await;
        assert_eq!(holding(&mysql).len(), 1);
        assert!(sessions(&mysql) <= 2, "{}", sessions(&mysql));
        // Of another TTL they have another, unless the server can't tell it from this one.
        let other = take(&client, "other", LONG * 2).await;
        assert_eq!(holding(&mysql).len(), 2);
        let close = take(&client, "close", LONG * 2 - ms(300)).await;
        assert_eq!(holding(&mysql).len(), 2);
        other.release().await.unwrap();
        close.release().await.unwrap();
        for guard in held {
            assert_eq!(guard.release().await.unwrap(), Release::Freed);
        }
        assert!(holding(&mysql).is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_of_one_process_wait_on_one_session_and_all_are_served() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let other = connect(&mysql.url()).await;
        let theirs = take(&other, "x", LONG).await;
        let waiters: Vec<_> = (0..1000)
            .map(|_| {
                let lock = lock(&client, "x", LONG);
                tokio::spawn(async move { lock.acquire().await?.release().await })
            })
            .collect();
        queued(&other, "x", 1).await;
        tokio::time::sleep(ms(300)).await;
        assert_eq!(waiting(&mysql), 1);
        theirs.release().await.unwrap();
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap().unwrap(), Release::Freed);
        }
        assert!(sessions(&mysql) <= 6, "{}", sessions(&mysql));
    })
    .await;
}

/// Sixteen wait on sessions of their own; the rest looks once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_many_names_takes_few_sessions_and_no_one_is_forgotten() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let other = connect(&mysql.url()).await;
        let theirs = hold_many(&other, 30, LONG).await;
        let waiters: Vec<_> = (0..30)
            .map(|at| {
                let lock = lock(&client, &format!("held/{at}"), LONG);
                tokio::spawn(async move { lock.acquire_within(LONG).await })
            })
            .collect();
        until(SLACK, async || waiting(&mysql) == 16).await;
        tokio::time::sleep(ms(500)).await;
        assert_eq!(waiting(&mysql), 16);
        for guard in theirs {
            guard.release().await.unwrap();
        }
        for waiter in waiters {
            let guard = waiter.await.unwrap().unwrap().expect("served");
            assert_eq!(guard.release().await.unwrap(), Release::Freed);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_but_the_counters() {
    on_each(async |mysql| {
        come_and_go(connect(&mysql.url()).await).await;
        until(SLACK, async || sessions(&mysql) == 0).await;
        let rows = "SELECT CONVERT(name USING utf8mb4) FROM leasehold.locks ORDER BY 1";
        assert_eq!(mysql.query(rows).unwrap(), "a\nb");
    })
    .await;
}

/// Each finds no table, and makes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_begin_at_once_on_an_empty_server_all_get_their_locks() {
    on_each(async |mysql| {
        let url = mysql.url();
        let clients = (0..12).map(|at| {
            let url = url.clone();
            tokio::spawn(async move {
                let client = leasehold::connect(&url).await.unwrap();
                let guard = lock(&client, &format!("x{at}"), LONG).try_acquire().await;
                guard.unwrap().expect("free").release().await.unwrap()
            })
        });
        for client in clients.collect::<Vec<_>>() {
            assert_eq!(client.await.unwrap(), Release::Freed);
        }
    })
    .await;
}

/// Both wait for a row that is inserted and taken back. What each gets then is all between the rows there are, and in that
/// neither can insert before the other lets go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_that_the_server_undoes_for_each_other_are_granted() {
    on_each(async |mysql| {
        let clients = [connect(&mysql.url()).await, connect(&mysql.url()).await];
        let guard = take(&clients[0], "z", LONG).await;
        guard.release().await.unwrap();
        let mut other = Session::start(&mysql);
        for round in 0..30 {
            try_between_rows(&clients, &mut other, round).await;
            let found = mysql.query("SHOW ENGINE INNODB STATUS").unwrap();
            if found.contains("LATEST DETECTED DEADLOCK") {
                return;
            }
        }
        panic!("there was no deadlock");
    })
    .await;
}

async fn try_between_rows(clients: &[Client], other: &mut Session, round: u32) {
    let names = [format!("a{round}"), format!("b{round}")];
    let [a, b] = &names;
    other.ask(&format!(
        "BEGIN; INSERT INTO leasehold.locks VALUES ('{a}', 1, '', 0, 0, 0, 0, NULL, ''); \
         INSERT INTO leasehold.locks VALUES ('{b}', 1, '', 0, 0, 0, 0, NULL, ''); SELECT 1;"
    ));
    let tries = names.iter().zip(clients).map(|(name, client)| {
        let lock = lock(client, name, LONG);
        tokio::spawn(async move { lock.try_acquire().await })
    });
    let tries: Vec<_> = tries.collect();
    // Not so long that they give up.
    tokio::time::sleep(ms(200)).await;
    other.ask("ROLLBACK; SELECT 1;");
    for tried in tries {
        let guard = tried.await.unwrap().unwrap().expect("free");
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
    }
}
