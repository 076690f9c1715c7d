//! Tries and releases that come to no end; what a client says that has the lock itself.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::*;
use leasehold::{ErrorKind, LossReason, Release};
use leasehold_testkit::servers::{Direction, Proxy};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Whether anybody has a lock.
fn is_held(mysql: &Mysql, lock: &str) -> bool {
    let held = mysql.query(&format!("SELECT IS_USED_LOCK('{lock}')"));
    held.unwrap() != "NULL"
}

/// On its session a lock could be taken twice, and would be given back once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_try_without_an_answer_took_is_held_once() {
    on_each(async |mysql| {
        let proxy = Proxy::start(mysql.address()).unwrap();
        let client = connect(&url_at(&mysql, proxy.address())).await;
        let direct = connect(&mysql.url()).await;
        let mut theirs = hold_many(&direct, 17, LONG).await;
        let wait = |number: usize| {
            let lock = lock(&client, &format!("held/{number}"), LONG);
            tokio::spawn(async move { lock.acquire().await })
        };
        // Sixteen wait on sessions of their own, so that the next one tries now and then.
        let waiters: Vec<_> = (0..16).map(wait).collect();
        until(SLACK, async || waiting(&mysql) == 16).await;
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
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_server_that_answers_is_said_to_be_busy() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let held = take(&client, "x", LONG).await;
        assert_busy(&client, "x").await;
        mysql.freeze().unwrap();
        let refused = lock(&client, "x", LONG).try_acquire().await;
        mysql.thaw().unwrap();
        assert!(refused.is_err(), "{refused:?}");
        held.release().await.unwrap();
    })
    .await;
}

/// The session was idle, and nobody has seen its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_over_a_session_that_was_killed_is_made_over_a_new_one() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        for _ in 0..5 {
            take(&client, "x", LONG).await.release().await.unwrap();
            let all = "SELECT ID FROM information_schema.PROCESSLIST \
                WHERE USER = 'root' AND COMMAND <> 'Daemon' AND ID <> CONNECTION_ID()";
            for id in mysql.query(all).unwrap().lines() {
                // It may be gone already.
                let _ = mysql.query(&format!("KILL {id}"));
            }
        }
        take(&client, "x", LONG).await.release().await.unwrap();
    })
    .await;
}

/// What an operator took away was another hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_is_no_break_because_one_came_before() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let broken = take(&client, "x", LONG).await;
        client.break_hold("x", None).await.unwrap();
        let reason = tokio::time::timeout(SLACK, broken.lost()).await.unwrap();
        assert_eq!(reason, LossReason::Broken);
        let held = take(&client, "x", LONG).await;
        let [id] = holding(&mysql)[..] else {
            panic!("one session holds");
        };
        mysql.query(&format!("KILL {id}")).unwrap();
        let reason = tokio::time::timeout(SLACK, held.lost()).await.unwrap();
        assert_eq!(reason, LossReason::SessionLost);
        assert_eq!(held.release().await.unwrap(), Release::Expired);
    })
    .await;
}

/// A proxy that lets its clients go when it is told to, and keeps their connections to the server.
async fn forgetful(server: SocketAddr) -> (SocketAddr, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let told = Arc::new(Notify::new());
    let forgets = told.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let forgets = forgets.clone();
            tokio::spawn(async move {
                let mut behind = TcpStream::connect(server).await.unwrap();
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut behind) => {}
                    () = forgets.notified() => {
                        drop(client);
                        std::future::pending::<()>().await;
                    }
                }
            });
        }
    });
    (address, told)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_server_has_not_noticed_the_end_of_the_session_says_so() {
    on_each(async |mysql| {
        let (address, told) = forgetful(mysql.address()).await;
        let client = connect(&url_at(&mysql, address)).await;
        let direct = connect(&mysql.url()).await;
        let held = take(&client, "x", LONG).await;
        told.notify_waiters();
        let reason = tokio::time::timeout(SLACK, held.lost()).await.unwrap();
        assert_eq!(reason, LossReason::SessionLost);
        assert_busy(&direct, "x").await;
        let error = held.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("hasn't noticed"), "{error}");
        let [id] = holding(&mysql)[..] else {
            panic!("one session holds");
        };
        mysql.query(&format!("KILL {id}")).unwrap();
        until(SLACK, async || !is_held(&mysql, "x")).await;
        take(&direct, "x", LONG).await.release().await.unwrap();
    })
    .await;
}
