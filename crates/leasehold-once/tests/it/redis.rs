//! Records on Redis and Valkey.

use std::time::Duration;

use ::redis::AsyncConnectionConfig;
use ::redis::aio::MultiplexedConnection;
use leasehold_core::{ErrorKind, Name};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, redis};
use leasehold_testkit::servers::{Redis, RedisEdition};

const HOUR: Duration = Duration::from_secs(3600);

async fn connect(server: &Redis) -> MultiplexedConnection {
    let client = ::redis::Client::open(server.url()).unwrap();
    // The driver's own time is half a second, which a busy machine takes.
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(HOUR))
        .set_response_timeout(Some(HOUR));
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    connection.await.unwrap()
}

async fn ask<T: ::redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &[&str],
) -> T {
    let mut asked = ::redis::cmd(command[0]);
    asked.arg(&command[1..]);
    asked.query_async(connection).await.unwrap()
}

fn nightly() -> Once {
    Once::new(Name::new("nightly").unwrap())
}

fn pass(token: &str) -> Pass {
    format!("nights:{token}").parse().unwrap()
}

#[tokio::test]
async fn every_server_keeps_records_that_expire_by_themselves() {
    for edition in RedisEdition::ALL {
        let server = Redis::start(edition).unwrap();
        let mut connection = connect(&server).await;
        let once = nightly().per(24 * HOUR);
        for (token, state, days) in [("7", "running", 7), ("8", "done", 2)] {
            let begun = redis::begin(&mut connection, &once, &pass(token)).await;
            assert_eq!(begun.unwrap(), Begun::First);
            if state == "done" {
                let finished = redis::finish(&mut connection, &once, &pass(token), b"x").await;
                assert_eq!(finished.unwrap(), Finished::Recorded);
            }
            let key = redis::key(once.key());
            assert_eq!(key, "leasehold:once:nightly");
            let is: String = ask(&mut connection, &["HGET", &key, "state"]).await;
            assert_eq!(is, state);
            let left: u64 = ask(&mut connection, &["TTL", &key]).await;
            let kept = days * 24 * 3600;
            assert!(left <= kept && left > kept - 600, "{left}");
        }
        // Without a period it stays, also where it was to expire before.
        let ever = nightly();
        assert!(redis::forget(&mut connection, ever.key()).await.unwrap());
        let begun = redis::begin(&mut connection, &nightly().keep(HOUR), &pass("8")).await;
        assert_eq!(begun.unwrap(), Begun::First);
        let finished = redis::finish(&mut connection, &ever, &pass("8"), b"").await;
        assert_eq!(finished.unwrap(), Finished::Recorded);
        let left: i64 = ask(&mut connection, &["TTL", &redis::key(ever.key())]).await;
        assert_eq!(left, -1);
    }
}

#[tokio::test]
async fn what_cannot_be_right_is_refused() {
    let server = Redis::start(RedisEdition::Redis6).unwrap();
    let mut connection = connect(&server).await;
    let key = redis::key(nightly().key());
    for foreign in [
        &["SET", &key, "x"][..],
        &["HSET", &key, "a", "b"],
        &[
            "HSET", &key, "lock", "nights", "epoch", "x", "token", "1", "state", "done", "started",
            "1",
        ],
    ] {
        ask::<()>(&mut connection, &["DEL", &key]).await;
        ask::<()>(&mut connection, foreign).await;
        let error = redis::begin(&mut connection, &nightly(), &pass("7")).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{foreign:?}: {error}");
        assert!(error.to_string().contains("nightly"), "{error}");
    }
    let user = "ACL SETUSER app on nopass ~leasehold:once:* +evalsha +eval +script|load +hmget";
    let user: Vec<&str> = user.split(' ').collect();
    ask::<()>(&mut connection, &user).await;
    ask::<()>(&mut connection, &["AUTH", "app", ""]).await;
    let error = redis::begin(&mut connection, &nightly(), &pass("7")).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unauthorized);
    drop(server);
    let error = redis::begin(&mut connection, &nightly(), &pass("7")).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Ambiguous);
}
