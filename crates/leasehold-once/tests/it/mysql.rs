//! Records in a MySQL or MariaDB database.

use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Name};
use leasehold_fence::Pass;
use leasehold_once::sql::MYSQL;
use leasehold_once::{Begun, Finished, Once, mysql};
use leasehold_testkit::servers::{Mysql, MysqlEdition};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, TxOpts};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs a test on a server of each edition.
async fn on_each(test: impl AsyncFn(Mysql)) {
    for edition in MysqlEdition::ALL {
        let server = Mysql::start(edition).unwrap();
        server.query("CREATE DATABASE app").unwrap();
        test(server).await;
    }
}

async fn login(server: &Mysql, user: &str) -> Conn {
    let address = server.address();
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some(user))
        .db_name(Some("app"))
        .prefer_socket(false);
    Conn::new(options).await.unwrap()
}

async fn connect(server: &Mysql) -> Conn {
    let mut conn = login(server, "root").await;
    mysql::prepare(&mut conn).await.unwrap();
    conn
}

fn nightly() -> Once {
    Once::new(Name::new("nightly").unwrap())
}

fn pass(token: &str) -> Pass {
    format!("nights:{token}").parse().unwrap()
}

/// As the caller's own transaction is by default: REPEATABLE READ.
async fn begin(conn: &mut Conn, once: &Once, token: &str) -> Result<Begun, Error> {
    let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
    let begun = mysql::begin(&mut transaction, once, &pass(token)).await;
    match begun {
        Ok(Begun::First) => transaction.commit().await.unwrap(),
        _ => transaction.rollback().await.unwrap(),
    }
    begun
}

async fn finish(conn: &mut Conn, once: &Once, token: &str) -> Finished {
    let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
    let finished = mysql::finish(&mut transaction, once, &pass(token), b"").await;
    transaction.commit().await.unwrap();
    finished.unwrap()
}

#[tokio::test]
async fn a_refusal_is_of_now_and_not_of_the_transactions_snapshot() {
    on_each(async |server| {
        let (mut conn, mut other) = (connect(&server).await, connect(&server).await);
        let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
        let count = "SELECT count(*) FROM leasehold_once";
        let before: Option<u64> = transaction.query_first(count).await.unwrap();
        assert_eq!(before, Some(0));
        assert_eq!(
            begin(&mut other, &nightly(), "7").await.unwrap(),
            Begun::First
        );
        match mysql::begin(&mut transaction, &nightly(), &pass("6")).await {
            Ok(begun) => assert!(matches!(begun, Begun::Running(_)), "{begun:?}"),
            // A MariaDB that holds transactions to their snapshots says so.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        transaction.rollback().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_server_whose_commits_do_not_wait_for_the_disk_is_refused() {
    on_each(async |server| {
        let mut conn = connect(&server).await;
        server
            .query("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
            .unwrap();
        let error = begin(&mut conn, &nightly(), "7").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("sync_binlog"), "{error}");
        // A key that is there is another way.
        let there = "INSERT INTO app.leasehold_once VALUES ('there', 'nights', 0, 1, 'failed', 0, 0, NULL, NULL)";
        server.query(there).unwrap();
        let there = Once::new(Name::new("there").unwrap());
        let error = begin(&mut conn, &there, "7").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        server
            .query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
            .unwrap();
        let begun = begin(&mut conn, &nightly(), "7").await;
        // Where there is a binary log that isn't written at once, that isn't enough.
        let log = "SELECT @@GLOBAL.log_bin = 0 OR @@GLOBAL.sync_binlog = 1";
        let enough: Option<u8> = conn.query_first(log).await.unwrap();
        assert_eq!(begun.is_ok(), enough == Some(1), "{begun:?}");
    })
    .await;
}

#[tokio::test]
async fn the_plain_statements_say_by_their_rows_what_came_of_it() {
    on_each(async |server| {
        for counts_found in [false, true] {
            let options = OptsBuilder::from_opts(login(&server, "root").await.opts().clone());
            let mut conn = Conn::new(options.client_found_rows(counts_found))
                .await
                .unwrap();
            mysql::prepare(&mut conn).await.unwrap();
            let (key, lock, none) = ("nightly", "nights", None::<i64>);
            for (token, rows) in [(7, 1), (7, 0), (6, 0), (10, 1)] {
                let place = MYSQL.place.unwrap();
                conn.exec_drop(place, (key,)).await.unwrap();
                let begin = (lock, 0, token, none, key, lock, none, 0, token, 0, token);
                conn.exec_drop(MYSQL.begin, begin).await.unwrap();
                assert_eq!(conn.affected_rows(), rows, "{token}");
            }
            for (token, rows) in [(7, 0), (10, 1), (10, 0)] {
                let finish = (b"receipt".as_slice(), none, key, lock, 0, token);
                conn.exec_drop(MYSQL.finish, finish).await.unwrap();
                assert_eq!(conn.affected_rows(), rows, "{token}");
            }
            // The library's own ways to the same are as sure.
            let done = begin(&mut conn, &nightly(), "11").await.unwrap();
            assert!(matches!(&done, Begun::Done(success) if success.result == b"receipt"));
            assert!(mysql::forget(&mut conn, nightly().key()).await.unwrap());
            for (token, first) in [("7", true), ("7", false), ("8", true), ("6", false)] {
                let begun = begin(&mut conn, &nightly(), token).await.unwrap();
                assert_eq!(begun == Begun::First, first, "{token}: {begun:?}");
            }
            assert!(mysql::forget(&mut conn, nightly().key()).await.unwrap());
        }
    })
    .await;
}

/// Whoever asks, and whatever his session is set to, it is the server's one clock and the same key.
#[tokio::test]
async fn sessions_of_other_time_zones_and_character_sets_agree() {
    on_each(async |server| {
        let (mut conn, mut other) = (connect(&server).await, connect(&server).await);
        let nightly = nightly().per(24 * HOUR);
        let zones = ["-11:00", "+13:00"].map(|zone| format!("SET time_zone = '{zone}'"));
        conn.query_drop(&zones[0]).await.unwrap();
        other.query_drop(&zones[1]).await.unwrap();
        assert_eq!(begin(&mut conn, &nightly, "7").await.unwrap(), Begun::First);
        assert_eq!(finish(&mut other, &nightly, "7").await, Finished::Recorded);
        for asks in [&mut conn, &mut other] {
            let Begun::Done(success) = begin(asks, &nightly, "8").await.unwrap() else {
                panic!("it is due again");
            };
            assert!(success.age < HOUR, "{success:?}");
            let took = success.ended.duration_since(success.started).unwrap();
            assert!(took < HOUR, "{success:?}");
        }

        other.query_drop("SET NAMES latin1").await.unwrap();
        let (latin, lock, none) = (b"caf\xe9".as_slice(), b"\xe9".as_slice(), None::<i64>);
        other
            .exec_drop(MYSQL.place.unwrap(), (latin,))
            .await
            .unwrap();
        let parameters = (lock, 0, 7, none, latin, lock, none, 0, 7, 0, 7);
        other.exec_drop(MYSQL.begin, parameters).await.unwrap();
        assert_eq!(other.affected_rows(), 1);
        let cafe = Once::new(Name::new("caf\u{e9}").unwrap());
        let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
        let pass: Pass = "\u{e9}:7".parse().unwrap();
        let begun = mysql::begin(&mut transaction, &cafe, &pass).await.unwrap();
        assert!(
            matches!(&begun, Begun::Running(by) if by.by == pass),
            "{begun:?}"
        );
        transaction.rollback().await.unwrap();
        let finish = (b"".as_slice(), none, latin, lock, 0, 7);
        other.exec_drop(MYSQL.finish, finish).await.unwrap();
        assert_eq!(other.affected_rows(), 1);
        let done = mysql::done(&mut conn, &cafe, pass.name()).await.unwrap();
        assert!(done.is_some());
    })
    .await;
}

#[tokio::test]
async fn records_whose_time_is_over_are_swept_in_parts() {
    on_each(async |server| {
        let mut conn = connect(&server).await;
        assert_eq!(
            begin(&mut conn, &nightly(), "1").await.unwrap(),
            Begun::First
        );
        for number in 0..5 {
            let once = Once::new(Name::new(&format!("x/{number}")).unwrap()).keep(HOUR);
            assert_eq!(begin(&mut conn, &once, "1").await.unwrap(), Begun::First);
            assert_eq!(finish(&mut conn, &once, "1").await, Finished::Recorded);
        }
        assert_eq!(mysql::sweep(&mut conn, 9).await.unwrap(), 0);
        let older = "UPDATE leasehold_once SET expires = expires - 7200000";
        conn.query_drop(older).await.unwrap();
        assert_eq!(mysql::sweep(&mut conn, 3).await.unwrap(), 3);
        assert_eq!(mysql::sweep(&mut conn, 3).await.unwrap(), 2);
        assert_eq!(mysql::list(&mut conn, "").await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_user_needs_no_more_than_to_use_the_table() {
    on_each(async |server| {
        let mut owner = connect(&server).await;
        for grant in [
            "CREATE USER app",
            "CREATE USER other",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON app.leasehold_once TO app",
            "CREATE TABLE more (id BIGINT)",
            "GRANT SELECT ON app.more TO other",
        ] {
            owner.query_drop(grant).await.unwrap();
        }
        let mut app = login(&server, "app").await;
        mysql::prepare(&mut app).await.unwrap();
        assert_eq!(
            begin(&mut app, &nightly(), "7").await.unwrap(),
            Begun::First
        );
        assert_eq!(finish(&mut app, &nightly(), "7").await, Finished::Recorded);
        assert_eq!(mysql::sweep(&mut app, 1).await.unwrap(), 0);
        assert!(mysql::forget(&mut app, nightly().key()).await.unwrap());
        let mut other = login(&server, "other").await;
        let error = begin(&mut other, &nightly(), "7").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");

        owner.query_drop("DROP TABLE leasehold_once").await.unwrap();
        let lock = Name::new("nights").unwrap();
        let done = mysql::done(&mut owner, &nightly(), &lock).await.unwrap();
        assert_eq!(done, None);
        assert_eq!(mysql::list(&mut owner, "").await.unwrap(), []);
        assert!(!mysql::forget(&mut owner, nightly().key()).await.unwrap());
        let error = begin(&mut owner, &nightly(), "7").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("mysql::prepare"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_clients_that_make_the_table_at_once_none_fails() {
    on_each(async |server| {
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(login(&server, "root").await);
        }
        for _ in 0..20 {
            let mut at_once = JoinSet::new();
            for mut client in clients.drain(..) {
                at_once.spawn(async move {
                    mysql::prepare(&mut client).await.unwrap();
                    client
                });
            }
            clients = at_once.join_all().await;
            let drop = clients[0].query_drop("DROP TABLE leasehold_once");
            drop.await.unwrap();
        }
    })
    .await;
}
