//! Locks inside transactions of sqlx.

use crate::common::*;
use leasehold::ErrorKind;
use leasehold::postgres::TransactionLocks;
use leasehold_core::clock;
use sqlx::PgPool;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_a_pool_takes_waits_and_counts() {
    let postgres = server();
    for query in ["", "?key=hashtext", "?key=raw:7,-1"] {
        let url = format!("{}{query}", postgres.url());
        let locks = TransactionLocks::of(&url).unwrap();
        let client = connect(&url).await;
        let pool = PgPool::connect(&postgres.url()).await.unwrap();
        let held = take(&client, "x", LONG).await;
        let session = held.token().get();
        let mut transaction = pool.begin().await.unwrap();
        assert!(!locks.try_acquire(&mut transaction, "x").await.unwrap());
        let begun = clock::now();
        let in_vain = locks.acquire_within(&mut transaction, "x", ms(300)).await;
        assert!(!in_vain.unwrap() && since(begun) >= ms(300));
        let freed = tokio::spawn(async move {
            tokio::time::sleep(ms(300)).await;
            held.release().await.unwrap();
        });
        locks.acquire(&mut transaction, "x").await.unwrap();
        freed.await.unwrap();
        let token = locks.token(&mut transaction, "x").await.unwrap();
        assert_eq!(token.get(), session + 1, "{query}");
        let shown: String = sqlx::query_scalar("SHOW lock_timeout")
            .fetch_one(&mut *transaction)
            .await
            .unwrap();
        assert_eq!(shown, "0");
        assert_busy(&client, "x").await;
        transaction.commit().await.unwrap();
        let next = take(&client, "x", LONG).await;
        assert_eq!(next.token().get(), session + 2);
        next.release().await.unwrap();
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_errors_say_the_same() {
    let postgres = server();
    let locks = TransactionLocks::new();
    let pool = PgPool::connect(&postgres.url()).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        .execute(&mut *transaction)
        .await
        .unwrap();
    let error = locks.try_acquire(&mut transaction, "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("READ COMMITTED"), "{error}");
    // From a task of its own, as anything that can be sent.
    let again = tokio::spawn(async move { locks.try_acquire(&mut transaction, "x").await });
    let error = again.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("aborted"), "{error}");
}
