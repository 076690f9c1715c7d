//! The fence in a MySQL or MariaDB database.

use std::time::Duration;

use leasehold_core::{ErrorKind, Name, Token};
use leasehold_fence::sql::MYSQL;
use leasehold_fence::{Checked, Mark, Seen, Stale, mysql};
use leasehold_testkit::servers::{Mysql, MysqlEdition};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, IsolationLevel, OptsBuilder, TxOpts, Value};
use tokio::sync::oneshot;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// Runs a test on a server of each edition.
pub(crate) async fn on_each(test: impl AsyncFn(Mysql)) {
    for edition in MysqlEdition::ALL {
        let server = Mysql::start(edition).unwrap();
        let tables = "CREATE DATABASE app; CREATE TABLE app.log (at SERIAL, mark TEXT) ENGINE=InnoDB; \
            CREATE TABLE app.more (id BIGINT NULL) ENGINE=InnoDB";
        server.query(tables).unwrap();
        test(server).await;
    }
}

pub(crate) fn options(server: &Mysql) -> OptsBuilder {
    let address = server.address();
    OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("root"))
        .db_name(Some("app"))
        .prefer_socket(false)
}

async fn connect(server: &Mysql) -> Conn {
    let mut conn = Conn::new(options(server)).await.unwrap();
    mysql::prepare(&mut conn).await.unwrap();
    conn
}

fn stock() -> Name {
    Name::new("stock").unwrap()
}

fn mark(text: &str) -> Mark {
    text.parse().unwrap()
}

fn stale(seen: &str, yours: &str) -> Checked {
    Checked::Stale(Stale {
        seen: mark(seen).into(),
        yours: mark(yours),
    })
}

/// As the caller's own transaction is by default: REPEATABLE READ.
async fn begin(conn: &mut Conn) -> mysql_async::Transaction<'_> {
    conn.start_transaction(TxOpts::default()).await.unwrap()
}

/// Offers a write; commits if it is accepted.
async fn write(conn: &mut Conn, text: &str) -> leasehold_core::Result<Checked> {
    let mut transaction = begin(conn).await;
    let checked = mysql::check(&mut transaction, &stock(), mark(text)).await;
    if let Ok(Checked::Accepted) = checked {
        transaction
            .exec_drop("INSERT INTO log (mark) VALUES (?)", (text,))
            .await
            .unwrap();
        transaction.commit().await.unwrap();
    } else {
        transaction.rollback().await.unwrap();
    }
    checked
}

async fn log(conn: &mut Conn) -> Vec<String> {
    conn.query("SELECT mark FROM log ORDER BY at")
        .await
        .unwrap()
}

#[tokio::test]
async fn the_newest_holder_writes_and_an_older_one_does_not() {
    on_each(async |server| {
        let mut conn = connect(&server).await;
        let seen = mysql::seen(&mut conn, &stock()).await.unwrap();
        assert_eq!(seen, Seen::default());
        for (text, came) in [
            ("7", Checked::Accepted),
            ("7", Checked::Accepted),
            ("6", stale("7", "6")),
            ("1.1", Checked::Accepted),
            ("9223372036854775807", stale("1.1", "9223372036854775807")),
            ("10.9007199254740993", Checked::Accepted),
            (
                "10.9007199254740992",
                stale("10.9007199254740993", "10.9007199254740992"),
            ),
            (
                "9.9007199254740994",
                stale("10.9007199254740993", "9.9007199254740994"),
            ),
            // Of an older epoch also with the same token.
            (
                "9.9007199254740993",
                stale("10.9007199254740993", "9.9007199254740993"),
            ),
        ] {
            assert_eq!(write(&mut conn, text).await.unwrap(), came, "{text}");
        }
        let mut other = connect(&server).await;
        assert_eq!(
            log(&mut other).await,
            ["7", "7", "1.1", "10.9007199254740993"]
        );
        let error = write(&mut other, "9223372036854775808").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);

        let mut advance = async |epoch| {
            let mut transaction = begin(&mut other).await;
            let seen = mysql::advance(&mut transaction, &stock(), epoch)
                .await
                .unwrap();
            transaction.commit().await.unwrap();
            seen
        };
        let ten = Seen::new(10, Token::new(9_007_199_254_740_993));
        assert_eq!(advance(9).await, ten);
        assert_eq!(advance(10).await, ten);
        assert_eq!(advance(u32::MAX).await, Seen::new(u32::MAX, None));
        let late = write(&mut conn, "11.1").await.unwrap();
        assert!(matches!(late, Checked::Stale(_)), "{late:?}");
        let seen = mysql::seen(&mut conn, &stock()).await.unwrap();
        assert_eq!(seen, Seen::new(u32::MAX, None));
    })
    .await;
}

#[tokio::test]
async fn an_older_holder_that_was_accepted_first_is_waited_for() {
    on_each(async |server| {
        let mut older = connect(&server).await;
        let mut newer = connect(&server).await;
        assert_eq!(write(&mut older, "6").await.unwrap(), Checked::Accepted);
        // Also with the mark that is there already, which changes no row.
        let mut open = begin(&mut older).await;
        let checked = mysql::check(&mut open, &stock(), mark("6")).await.unwrap();
        assert_eq!(checked, Checked::Accepted);
        let waiting = tokio::spawn(async move {
            let mut transaction = begin(&mut newer).await;
            let checked = mysql::check(&mut transaction, &stock(), mark("8"))
                .await
                .unwrap();
            // What was waited for is seen.
            let seen: Vec<String> = transaction
                .query("SELECT mark FROM log ORDER BY at")
                .await
                .unwrap();
            transaction
                .query_drop("INSERT INTO log (mark) VALUES ('8')")
                .await
                .unwrap();
            transaction.commit().await.unwrap();
            (checked, seen)
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(
            !waiting.is_finished(),
            "two fenced transactions of one resource overlap"
        );
        open.query_drop("INSERT INTO log (mark) VALUES ('again')")
            .await
            .unwrap();
        open.commit().await.unwrap();
        let (checked, seen) = waiting.await.unwrap();
        assert_eq!(
            (checked, seen),
            (Checked::Accepted, vec!["6".to_owned(), "again".to_owned()])
        );
        assert_eq!(write(&mut older, "7").await.unwrap(), stale("8", "7"));
        assert_eq!(log(&mut older).await, ["6", "again", "8"]);
    })
    .await;
}

#[tokio::test]
async fn an_accepted_mark_costs_one_statement() {
    on_each(async |server| {
        let mut conn = connect(&server).await;
        assert_eq!(write(&mut conn, "6").await.unwrap(), Checked::Accepted);
        let mut transaction = begin(&mut conn).await;
        let status = "SHOW SESSION STATUS LIKE 'Com_stmt_execute'";
        for text in ["7", "7", "1.1"] {
            let before: Option<(String, u64)> = transaction.query_first(status).await.unwrap();
            let checked = mysql::check(&mut transaction, &stock(), mark(text)).await;
            assert_eq!(checked.unwrap(), Checked::Accepted);
            let after: Option<(String, u64)> = transaction.query_first(status).await.unwrap();
            assert_eq!(after.unwrap().1 - before.unwrap().1, 1, "{text}");
        }
        transaction.rollback().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_stale_transaction_keeps_a_newer_holder_out_until_it_ends_and_not_longer() {
    on_each(async |server| {
        let mut older = connect(&server).await;
        let mut newer = connect(&server).await;
        assert_eq!(write(&mut newer, "8").await.unwrap(), Checked::Accepted);
        let mut open = begin(&mut older).await;
        let checked = mysql::check(&mut open, &stock(), mark("7")).await.unwrap();
        assert_eq!(checked, stale("8", "7"));
        newer
            .query_drop("SET innodb_lock_wait_timeout = 1")
            .await
            .unwrap();
        let error = write(&mut newer, "9").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let says = "open for longer than innodb_lock_wait_timeout";
        assert!(error.to_string().contains(says), "{error}");
        open.rollback().await.unwrap();
        assert_eq!(write(&mut newer, "9").await.unwrap(), Checked::Accepted);
    })
    .await;
}

#[tokio::test]
async fn transactions_of_two_resources_do_not_wait_for_each_other() {
    on_each(async |server| {
        let mut first = connect(&server).await;
        let mut second = connect(&server).await;
        let other = Name::new("other").unwrap();
        for name in [&stock(), &other] {
            let mut transaction = begin(&mut first).await;
            let checked = mysql::check(&mut transaction, name, mark("6")).await;
            assert_eq!(checked.unwrap(), Checked::Accepted);
            transaction.commit().await.unwrap();
        }
        let mut open = begin(&mut first).await;
        let checked = mysql::check(&mut open, &stock(), mark("7")).await;
        assert_eq!(checked.unwrap(), Checked::Accepted);
        let mut beside = begin(&mut second).await;
        let checked = mysql::check(&mut beside, &other, mark("7"));
        let checked = tokio::time::timeout(LONG, checked).await;
        assert_eq!(checked.unwrap().unwrap(), Checked::Accepted);
        beside.commit().await.unwrap();
        open.commit().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_snapshot_from_before_the_check_does_not_hide_a_newer_holder() {
    on_each(async |server| {
        let mut older = connect(&server).await;
        let mut newer = connect(&server).await;
        assert_eq!(write(&mut newer, "6").await.unwrap(), Checked::Accepted);
        let mut options = TxOpts::default();
        options
            .with_isolation_level(IsolationLevel::RepeatableRead)
            .with_consistent_snapshot(true);
        let mut open = older.start_transaction(options).await.unwrap();
        let read: Option<i64> = open
            .query_first("SELECT token FROM leasehold_fence")
            .await
            .unwrap();
        assert_eq!(read, Some(6));
        assert_eq!(write(&mut newer, "8").await.unwrap(), Checked::Accepted);
        let read: Option<i64> = open
            .query_first("SELECT token FROM leasehold_fence")
            .await
            .unwrap();
        assert_eq!(read, Some(6), "no snapshot; then what does this test?");
        let checked = mysql::check(&mut open, &stock(), mark("7")).await;
        match checked {
            Ok(checked) => assert_eq!(checked, stale("8", "7")),
            // A MariaDB that holds transactions to their snapshots.
            Err(error) => assert!(error.to_string().contains("as a whole"), "{error}"),
        }
        open.rollback().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_a_deadlock_ends_is_told_to_try_again() {
    on_each(async |server| {
        let mut first = connect(&server).await;
        let mut second = connect(&server).await;
        assert_eq!(write(&mut first, "6").await.unwrap(), Checked::Accepted);
        first
            .query_drop("INSERT INTO log (mark) VALUES ('row')")
            .await
            .unwrap();
        // Writes before the check, which is the wrong order.
        let mut wrong = begin(&mut second).await;
        wrong
            .query_drop("UPDATE log SET mark = 'wrong' WHERE mark = 'row'")
            .await
            .unwrap();
        let (checked_first, first_has_checked) = oneshot::channel();
        let waiting = tokio::spawn(async move {
            let mut right = begin(&mut first).await;
            let checked = mysql::check(&mut right, &stock(), mark("7")).await.unwrap();
            // More rows written, so that the other one is chosen.
            let rows = "INSERT INTO more SELECT ID FROM information_schema.COLLATIONS";
            right.query_drop(rows).await.unwrap();
            checked_first.send(()).unwrap();
            let update = "UPDATE log SET mark = 'right' WHERE mark = 'row'";
            right.query_drop(update).await.unwrap();
            right.commit().await.unwrap();
            checked
        });
        first_has_checked.await.unwrap();
        let error = mysql::check(&mut wrong, &stock(), mark("8"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(
            error.to_string().contains("tried again as a whole"),
            "{error}"
        );
        wrong.rollback().await.unwrap();
        assert_eq!(waiting.await.unwrap(), Checked::Accepted);
        let seen = mysql::seen(&mut second, &stock()).await.unwrap();
        assert_eq!(seen, mark("7").into());
    })
    .await;
}

#[tokio::test]
async fn a_server_whose_commits_do_not_wait_for_the_disk_is_refused() {
    for (edition, has_log) in MysqlEdition::ALL
        .into_iter()
        .flat_map(|edition| [(edition, false), (edition, true)])
    {
        let log: &[&str] = if has_log {
            &["log-bin=log", "server-id=1", "sync-binlog=1"]
        } else {
            &[]
        };
        let server = Mysql::start_with(edition, log, None).unwrap();
        server.query("CREATE DATABASE app").unwrap();
        let mut conn = connect(&server).await;
        // With a row that is there already, and for one that isn't.
        let mut transaction = begin(&mut conn).await;
        let checked = mysql::check(&mut transaction, &stock(), mark("7")).await;
        assert_eq!(checked.unwrap(), Checked::Accepted);
        transaction.commit().await.unwrap();
        let other = Name::new("other").unwrap();
        for (setting, durable) in [
            ("innodb_flush_log_at_trx_commit = 2", false),
            ("innodb_flush_log_at_trx_commit = 0", false),
            ("innodb_flush_log_at_trx_commit = 1", true),
            ("sync_binlog = 0", !has_log),
        ] {
            server.query(&format!("SET GLOBAL {setting}")).unwrap();
            let mut transaction = begin(&mut conn).await;
            let checked = mysql::check(&mut transaction, &stock(), mark("7")).await;
            let first = mysql::check(&mut transaction, &other, mark("7")).await;
            let advanced = mysql::advance(&mut transaction, &stock(), 1).await;
            transaction.rollback().await.unwrap();
            if durable {
                assert_eq!(checked.unwrap(), Checked::Accepted, "{setting}");
                assert_eq!(first.unwrap(), Checked::Accepted, "{setting}");
                assert_eq!(advanced.unwrap(), Seen::new(1, None));
                continue;
            }
            for error in [checked.map(drop), first.map(drop), advanced.map(drop)] {
                let error = error.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{setting}");
                assert!(error.to_string().contains("power cut"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_user_needs_no_more_than_to_use_the_table() {
    on_each(async |server| {
        let mut owner = connect(&server).await;
        let users = "CREATE USER me; GRANT SELECT, INSERT, UPDATE ON app.leasehold_fence TO me; \
            CREATE USER other; GRANT SELECT ON app.log TO other";
        server.query(users).unwrap();
        let mut me = Conn::new(options(&server).user(Some("me"))).await.unwrap();
        mysql::prepare(&mut me).await.unwrap();
        let mut transaction = begin(&mut me).await;
        let checked = mysql::check(&mut transaction, &stock(), mark("7")).await;
        assert_eq!(checked.unwrap(), Checked::Accepted);
        transaction.commit().await.unwrap();
        let login = options(&server).user(Some("other"));
        let mut other = Conn::new(login).await.unwrap();
        let error = write(&mut other, "7").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        // What to do, and what the server said.
        for says in ["--role USER", "command denied to user", "(1142)"] {
            assert!(error.to_string().contains(says), "{error}");
        }
        owner
            .query_drop("DROP TABLE leasehold_fence")
            .await
            .unwrap();
        let seen = mysql::seen(&mut me, &stock()).await.unwrap();
        assert_eq!(seen, Seen::default());
        let error = write(&mut owner, "7").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("mysql::prepare"), "{error}");
        let nowhere = options(&server).db_name(None::<String>);
        let mut nowhere = Conn::new(nowhere).await.unwrap();
        let error = mysql::prepare(&mut nowhere).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("in no database"), "{error}");
    })
    .await;
}

/// What the plain statements say of a mark, in a transaction that is committed.
async fn offer(conn: &mut Conn, resource: &[u8], token: i64) -> mysql_async::Result<(i64, i64)> {
    let mut transaction = conn.start_transaction(TxOpts::default()).await?;
    let resource = || Value::Bytes(resource.to_owned());
    transaction
        .exec_drop(MYSQL.check, (resource(), 0, token))
        .await?;
    let verdict = transaction
        .exec_first(MYSQL.verdict.unwrap(), (resource(),))
        .await?;
    transaction.commit().await?;
    Ok(verdict.unwrap())
}

#[tokio::test]
async fn the_plain_statements_say_what_came_of_it_however_the_connection_counts_rows() {
    on_each(async |server| {
        drop(connect(&server).await);
        for counts_found in [false, true] {
            let options = options(&server).client_found_rows(counts_found);
            let mut conn = Conn::new(options).await.unwrap();
            conn.query_drop("DELETE FROM leasehold_fence")
                .await
                .unwrap();
            for (token, seen) in [(7, 7), (7, 7), (6, 7), (8, 8)] {
                let said = offer(&mut conn, b"stock", token).await.unwrap();
                assert_eq!(said, (0, seen), "{token}");
            }
            // Whatever the server makes of numbers that are none of its own.
            for mode in ["STRICT_ALL_TABLES", ""] {
                let set = format!("SET sql_mode = '{mode}'");
                conn.query_drop(set).await.unwrap();
                offer(&mut conn, b"stock", -1).await.unwrap_err();
            }
            let seen = mysql::seen(&mut conn, &stock()).await.unwrap();
            assert_eq!(seen, mark("8").into());
        }
    })
    .await;
}

#[tokio::test]
async fn a_resource_is_the_same_in_every_character_set_and_names_that_look_alike_are_not() {
    on_each(async |server| {
        let mut conn = connect(&server).await;
        let names = ["caf\u{e9}", "cafe", "CAFE", "cafe ", "cafe\u{301}"];
        for (name, token) in names.into_iter().zip([9, 8, 7, 6, 5]) {
            let said = offer(&mut conn, name.as_bytes(), token).await.unwrap();
            assert_eq!(said, (0, token), "{name:?}");
        }
        let mut latin = connect(&server).await;
        latin.query_drop("SET NAMES latin1").await.unwrap();
        let said = offer(&mut latin, b"caf\xe9", 4).await.unwrap();
        assert_eq!(said, (0, 9));
        let name = Name::new("caf\u{e9}").unwrap();
        let seen = mysql::seen(&mut conn, &name).await.unwrap();
        assert_eq!(seen, mark("9").into());
        let longest = Name::new(&"\u{1f600}".repeat(50)).unwrap();
        let said = offer(&mut conn, longest.as_str().as_bytes(), 3).await;
        assert_eq!(said.unwrap(), (0, 3));
        let seen = mysql::seen(&mut conn, &longest).await.unwrap();
        assert_eq!(seen, mark("3").into());
    })
    .await;
}
