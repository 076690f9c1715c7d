//! The table of the marks, made by several clients at once.

use std::sync::Arc;

use leasehold_fence as fence;
use leasehold_testkit::servers::Postgres;
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tokio::task::JoinSet;

use crate::{mysql, postgres, sqlx};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_clients_that_make_it_at_once_none_fails_on_postgres() {
    let server = Postgres::start().unwrap();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Arc::new(postgres::connect(&server).await));
    }
    for _ in 0..60 {
        let drop = clients[0].batch_execute("DROP TABLE leasehold_fence");
        drop.await.unwrap();
        let mut at_once = JoinSet::new();
        for client in &clients {
            let client = client.clone();
            at_once.spawn(async move { fence::postgres::prepare(client.as_ref()).await });
        }
        for made in at_once.join_all().await {
            made.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_clients_that_make_it_at_once_none_fails_by_sqlx() {
    let server = Postgres::start().unwrap();
    let pool = sqlx::connect(&server).await;
    for _ in 0..60 {
        let drop = ::sqlx::query("DROP TABLE leasehold_fence").execute(&pool);
        drop.await.unwrap();
        let mut at_once = JoinSet::new();
        for _ in 0..8 {
            let pool = pool.clone();
            at_once.spawn(
                async move { fence::sqlx::prepare(&mut pool.acquire().await.unwrap()).await },
            );
        }
        for made in at_once.join_all().await {
            made.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_clients_that_make_it_at_once_none_fails_on_mysql() {
    mysql::on_each(async |server| {
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(Conn::new(mysql::options(&server)).await.unwrap());
        }
        for _ in 0..20 {
            let mut at_once = JoinSet::new();
            for mut client in clients.drain(..) {
                at_once.spawn(async move {
                    fence::mysql::prepare(&mut client).await.unwrap();
                    client
                });
            }
            clients = at_once.join_all().await;
            let drop = clients[0].query_drop("DROP TABLE leasehold_fence");
            drop.await.unwrap();
        }
    })
    .await;
}
