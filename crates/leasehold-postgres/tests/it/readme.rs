//! The README says what the code does.

use crate::common::*;
use leasehold::Release;
use leasehold_core::url::StoreUrl;
use leasehold_testkit::readme::check_capabilities;
use leasehold_testkit::servers::Postgres;

#[tokio::test]
async fn the_capability_table_is_true() {
    let postgres = Postgres::start().expect("PostgreSQL starts");
    let url = StoreUrl::parse(&postgres.url()).expect("the server's URL is one");
    let backend = leasehold_postgres::connect(url).await.expect("connects");
    check_capabilities(
        include_str!("../../README.md"),
        &backend.info().capabilities,
    );
}

/// What the README shows for psql, told to two of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readmes_sql_takes_the_lock_and_counts_its_token() {
    let readme = include_str!("../../README.md");
    let sql = readme
        .split("```sql")
        .find(|block| block.contains("PREPARE"));
    let sql = sql.and_then(|block| block.split("```").next()).unwrap();
    let (prepare, run) = sql.split_once("BEGIN;").unwrap();
    for statement in [leasehold::postgres::TRY_ACQUIRE, leasehold::postgres::TOKEN] {
        assert!(prepare.contains(statement), "{statement}");
    }
    let run: Vec<&str> = run
        .lines()
        .map(|line| line.split("--").next().unwrap_or(line).trim())
        .filter(|line| !line.is_empty())
        .collect();
    let postgres = server();
    postgres.query(leasehold::postgres::SCHEMA).unwrap();
    let client = connect(&postgres.url()).await;
    let mut psql = Session::start(&postgres);
    psql.ask(&format!("{prepare} BEGIN; SELECT 'ready';"));
    assert_eq!(psql.ask(run[0]), "t", "{run:?}");
    assert_eq!(psql.ask(run[1]), "1");
    assert_busy(&client, "accounts/7").await;
    assert_eq!(psql.ask(&format!("{} SELECT 'done';", run[2])), "done");
    let held = take(&client, "accounts/7", LONG).await;
    assert_eq!(held.token().get(), 2);
    assert_eq!(psql.ask(&format!("BEGIN; {}", run[0])), "f");
    assert_eq!(
        psql.answer(&format!("{} SELECT 'no';", run[1]), SLACK)
            .unwrap(),
        "no"
    );
    assert_eq!(held.release().await.unwrap(), Release::Freed);
}
