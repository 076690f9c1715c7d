//! Users, rights, certificates, sockets.

use crate::common::*;
use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::{Authority, Postgres};

/// Has everybody but `postgres` show a password.
fn ask_for_passwords(postgres: &Postgres) {
    let file = postgres.socket_folder().join("pg_hba.conf");
    let lines = format!(
        "COPY (VALUES ('host all postgres 127.0.0.1/32 trust'), ('host all all 127.0.0.1/32 scram-sha-256')) TO '{}'",
        file.display()
    );
    postgres.query(&lines).unwrap();
    postgres.query("SELECT pg_reload_conf()").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_shown_to_the_server_and_to_nobody_else() {
    let postgres = server();
    postgres
        .query("CREATE ROLE me LOGIN PASSWORD 'canary-1'; GRANT CREATE ON DATABASE locks TO me")
        .unwrap();
    ask_for_passwords(&postgres);
    let url = |login: &str| format!("postgres://{login}@{}/locks", postgres.address());
    until(SLACK, async || {
        leasehold::connect(&url("me:canary-2")).await.is_err()
    })
    .await;
    let client = connect(&url("me:canary-1")).await;
    take(&client, "x", LONG).await.release().await.unwrap();
    for login in ["me:canary-2", "you:canary-1", "me"] {
        let error = leasehold::connect(&url(login)).await.unwrap_err();
        let text = format!("{error} {error:?} {client:?}");
        assert!(!text.contains("canary"), "{text}");
        if login != "me" {
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{login}: {error:?}");
        }
    }
    let nowhere = format!("postgres://postgres@{}/nowhere", postgres.address());
    let error = leasehold::connect(&nowhere).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_not_make_the_table_is_told_and_may_use_it_when_it_is_there() {
    let postgres = server();
    postgres.query("CREATE ROLE me LOGIN").unwrap();
    let url = format!("postgres://me@{}/locks", postgres.address());
    let client = connect(&url).await;
    let tried = || lock(&client, "x", LONG);
    // Looking takes no table.
    assert_eq!(client.inspect("x").await.unwrap().holder, None);
    assert_eq!(client.list("").await.unwrap(), []);
    let error = tried().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    postgres.query(leasehold_postgres::SCHEMA).unwrap();
    let error = tried().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(error.to_string().contains("leasehold.locks"), "{error}");
    // A try that was refused keeps nobody out.
    let other = connect(&postgres.url()).await;
    take(&other, "x", LONG).await.release().await.unwrap();
    postgres
        .query("GRANT USAGE ON SCHEMA leasehold TO me; GRANT SELECT, INSERT, UPDATE ON leasehold.locks TO me")
        .unwrap();
    let holder = tried().try_acquire().await.unwrap().expect("free");
    assert_busy(&other, "x").await;
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_server_whose_certificate_is_verified_is_spoken_with_where_that_is_asked_for() {
    let authority = Authority::new().unwrap();
    let postgres = Postgres::start_with(&[], Some(&authority.server())).unwrap();
    let url = |query: &str| format!("{}?{query}", postgres.url());
    let trusting = authority.trusting();
    for mode in ["require", "verify-full"] {
        let client = connect(&url(&format!("sslmode={mode}&{trusting}"))).await;
        let holder = take(&client, "x", LONG).await;
        let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
            WHERE application_name = 'leasehold' AND NOT ssl";
        assert_eq!(postgres.query(encrypted).unwrap(), "0");
        holder.release().await.unwrap();
        client.close().await;
        let stranger = Authority::new().unwrap();
        let strange = url(&format!("sslmode={mode}&{}", stranger.trusting()));
        let error = leasehold::connect(&strange).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let plain = server();
    let wanted = format!("{}?sslmode=verify-full&{trusting}", plain.url());
    let error = leasehold::connect(&wanted).await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_will_do_and_of_several_servers_one_that_is_there() {
    let postgres = server();
    let port = postgres.address().port();
    // The socket's name has the port in it, and the default one is looked for.
    let folder = postgres.socket_folder();
    std::os::unix::fs::symlink(
        folder.join(format!(".s.PGSQL.{port}")),
        folder.join(".s.PGSQL.5432"),
    )
    .unwrap();
    let url = format!("postgres://postgres@/locks?host={}", folder.display());
    let client = connect(&url).await;
    let holder = take(&client, "x", LONG).await;
    let several = format!(
        "postgres://postgres@127.0.0.1:9,{}/locks",
        postgres.address()
    );
    let other = connect(&several).await;
    assert_busy(&other, "x").await;
    holder.release().await.unwrap();
    let findings = other.check().await.unwrap();
    assert!(
        findings
            .iter()
            .any(|found| found.what.contains("PostgreSQL 15")),
        "{findings:?}"
    );
    let error = leasehold::connect("postgres://postgres@127.0.0.1:9/locks").await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}
