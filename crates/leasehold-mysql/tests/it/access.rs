//! Users, rights, certificates, sockets.

use crate::common::*;
use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::Authority;

/// TLS by the driver takes what the process chose.
fn choose_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_shown_to_the_server_and_to_nobody_else() {
    on_each(async |mysql| {
        mysql
            .query("CREATE USER me IDENTIFIED BY 'canary-1'; GRANT ALL ON leasehold.* TO me")
            .unwrap();
        let url = |login: &str| {
            let scheme = mysql.edition().name();
            format!("{scheme}://{login}@{}", mysql.address())
        };
        // Twice: MySQL remembers a user that it has checked.
        for _ in 0..2 {
            let client = connect(&url("me:canary-1")).await;
            take(&client, "x", LONG).await.release().await.unwrap();
            assert!(!format!("{client:?}").contains("canary"));
        }
        for login in ["me:canary-2", "you:canary-1", "me"] {
            let error = leasehold::connect(&url(login)).await.unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains("canary"), "{text}");
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{login}: {error:?}");
        }
        let nowhere = format!("{}/nowhere", mysql.url());
        let error = leasehold::connect(&nowhere).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_make_the_table_is_told_and_may_use_it_when_it_is_there() {
    on_each(async |mysql| {
        mysql.query("CREATE USER me").unwrap();
        let client = connect(&mysql.url().replace("root", "me")).await;
        let tried = || lock(&client, "x", LONG);
        let error = tried().try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        mysql.query(leasehold_mysql::SCHEMA).unwrap();
        let error = tried().try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        assert!(error.to_string().contains("leasehold.locks"), "{error}");
        // A try that was refused keeps nobody out.
        let other = connect(&mysql.url()).await;
        take(&other, "x", LONG).await.release().await.unwrap();
        mysql
            .query("GRANT SELECT, INSERT, UPDATE ON leasehold.locks TO me")
            .unwrap();
        let client = connect(&mysql.url().replace("root", "me")).await;
        let holder = take(&client, "x", LONG).await;
        assert_busy(&other, "x").await;
        assert_eq!(client.list("").await.unwrap().len(), 1);
        assert!(!client.check().await.unwrap().is_empty());
        assert_eq!(holder.release().await.unwrap(), Release::Freed);
        let theirs = take(&other, "x", LONG).await;
        // Of those who wait he is shown his own.
        let waits = lock(&client, "x", LONG);
        let waiter = tokio::spawn(async move { waits.acquire().await });
        queued(&client, "x", 1).await;
        theirs.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_server_whose_certificate_is_verified_is_spoken_with_where_that_is_asked_for() {
    choose_cryptography();
    for edition in MysqlEdition::ALL {
        let authority = Authority::new().unwrap();
        let mysql = Mysql::start_with(edition, &[], Some(&authority.server())).unwrap();
        mysql
            .query("CREATE USER me IDENTIFIED BY 'secret' REQUIRE X509; GRANT ALL ON leasehold.* TO me")
            .unwrap();
        let url = |login: &str, query: &str| {
            format!("{}://{login}@{}?{query}", edition.name(), mysql.address())
        };
        for mode in ["REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"] {
            let trusting = format!("ssl-mode={mode}&{}", authority.trusting());
            let client = connect(&url("root", &trusting)).await;
            take(&client, "x", LONG).await.release().await.unwrap();
            let other = Authority::new().unwrap();
            let stranger = format!("ssl-mode={mode}&{}", other.trusting());
            let error = leasehold::connect(&url("root", &stranger))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("certificate"), "{error}");
        }
        let shows = format!("ssl-mode=REQUIRED&{}", authority.showing());
        let client = connect(&url("me:secret", &shows)).await;
        take(&client, "x", LONG).await.release().await.unwrap();
        for hides in [
            "ssl-mode=DISABLED".to_owned(),
            format!("ssl-mode=REQUIRED&{}", authority.trusting()),
        ] {
            let error = leasehold::connect(&url("me:secret", &hides))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_not_spoken_with_in_plain_text_where_tls_is_asked_for() {
    choose_cryptography();
    let authority = Authority::new().unwrap();
    // MariaDB has none unless it is given a certificate.
    let mysql = Mysql::start(MysqlEdition::MariaDb).unwrap();
    let url = format!(
        "{}?ssl-mode=VERIFY_IDENTITY&{}",
        mysql.url(),
        authority.trusting()
    );
    let error = leasehold::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_will_do_and_of_several_servers_one_that_takes_writes() {
    on_each(async |mysql| {
        let scheme = mysql.edition().name();
        let url = format!("{scheme}://root@?socket={}", mysql.socket().display());
        let client = connect(&url).await;
        let holder = take(&client, "x", LONG).await;
        let replica = Mysql::start_with(mysql.edition(), &["read-only=1"], None).unwrap();
        let error = leasehold::connect(&replica.url()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("replica"), "{error}");
        let several = format!(
            "{scheme}://root@127.0.0.1:9,{},{}/mysql",
            replica.address(),
            mysql.address()
        );
        let other = connect(&several).await;
        assert_busy(&other, "x").await;
        holder.release().await.unwrap();
        let findings = other.check().await.unwrap();
        let version = match mysql.edition() {
            MysqlEdition::MariaDb => "MariaDB 10.11",
            MysqlEdition::MySql => "MySQL 9",
        };
        assert!(
            findings.iter().any(|found| found.what.contains(version)),
            "{findings:?}"
        );
    })
    .await;
    let error = leasehold::connect("mysql://root@127.0.0.1:9").await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}
