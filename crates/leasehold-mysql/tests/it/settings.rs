//! What a server is set to.

use crate::common::*;
use leasehold::Release;
use leasehold::store::Verdict;
use leasehold_core::clock;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_a_server_break_nothing() {
    on_each(async |mysql| {
        let own = match mysql.edition() {
            MysqlEdition::MariaDb => {
                "tx_isolation = 'SERIALIZABLE', GLOBAL tx_read_only = 1, GLOBAL max_statement_time = 0.05"
            }
            MysqlEdition::MySql => {
                "transaction_isolation = 'SERIALIZABLE', GLOBAL transaction_read_only = 1, GLOBAL max_execution_time = 50"
            }
        };
        mysql
            .query(&format!(
                "SET GLOBAL {own}, GLOBAL autocommit = 0, GLOBAL wait_timeout = 1, GLOBAL interactive_timeout = 1, \
                 GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT', GLOBAL time_zone = '-11:00', \
                 GLOBAL character_set_server = latin1, GLOBAL init_connect = 'SET @own = 1'"
            ))
            .unwrap();
        let client = connect(&mysql.url()).await;
        let holder = take(&client, "it's \\ \u{e9}", LONG).await;
        let other = connect(&mysql.url()).await;
        let waits = [&client, &other].map(|client| {
            let lock = lock(client, "it's \\ \u{e9}", LONG);
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let token = guard.token();
                assert_eq!(guard.release().await.unwrap(), Release::Freed);
                token
            })
        });
        tokio::time::sleep(ms(1500)).await;
        let seen = client.inspect("it's \\ \u{e9}").await.unwrap();
        let seen = seen.holder.expect("held").since.expect("with its time");
        let age = clock::wall().duration_since(seen).unwrap();
        assert!(age > ms(1000) && age < SLACK * 2, "{age:?}");
        let mut tokens = vec![holder.token()];
        holder.release().await.unwrap();
        for wait in waits {
            tokens.push(wait.await.unwrap());
        }
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 3);
    })
    .await;
}

/// Another start in that second couldn't be told from this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_a_lock_in_the_second_that_its_server_started_in() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        take(&client, "x", LONG).await.release().await.unwrap();
        let start = mysql.query("SELECT server_start FROM leasehold.locks");
        let start: u64 = start.unwrap().parse().unwrap();
        mysql
            .query("CREATE USER me; GRANT ALL ON leasehold.* TO me")
            .unwrap();
        // For everybody but root it is another time.
        let at = async |time: String| {
            let set = format!("SET GLOBAL init_connect = 'SET timestamp = {time}'");
            mysql.query(&set).unwrap();
            connect(&mysql.url().replace("root", "me")).await
        };
        assert_busy(&at(format!("{start}.999")).await, "x").await;
        let later = at(format!("{}", start + 1)).await;
        take(&later, "x", LONG).await.release().await.unwrap();
    })
    .await;
}

/// What the server is set to decides what a crash may take, and doctor says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_keep_what_it_answered_is_found() {
    for edition in MysqlEdition::ALL {
        let settings = [
            "innodb-flush-log-at-trx-commit=2",
            "log-bin=log",
            "sync-binlog=0",
        ];
        let mysql = Mysql::start_with(edition, &settings, None).unwrap();
        let client = connect(&mysql.url()).await;
        let findings = client.check().await.unwrap();
        let is = |verdict, says: &str| {
            let mut found = findings.iter();
            found.any(|found| found.verdict == verdict && found.what.contains(says))
        };
        assert!(
            is(Verdict::Bad, "innodb_flush_log_at_trx_commit is 2"),
            "{findings:?}"
        );
        assert!(is(Verdict::Bad, "sync_binlog is 0"), "{findings:?}");
        // Locks go by the binary log, too.
        take(&client, "x", LONG).await.release().await.unwrap();
        assert_eq!(take(&client, "x", LONG).await.token().get(), 2);
    }
}
