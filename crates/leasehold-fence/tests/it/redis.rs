//! The fence on real servers.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use leasehold_core::{ErrorKind, Name, Token};
use leasehold_fence::{Checked, Mark, Seen, Stale, redis};
use leasehold_testkit::servers::{Redis, RedisEdition};

const COUNT: &str = "count of {stock}";

async fn connect(server: &Redis) -> MultiplexedConnection {
    let client = ::redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
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

async fn held(connection: &mut MultiplexedConnection, key: &str) -> Option<String> {
    ::redis::cmd("GET")
        .arg(key)
        .query_async(connection)
        .await
        .unwrap()
}

async fn put(connection: &mut MultiplexedConnection, key: &str, value: &str) {
    ::redis::cmd("SET")
        .arg(key)
        .arg(value)
        .exec_async(connection)
        .await
        .unwrap();
}

#[tokio::test]
async fn every_server_compares_exactly_and_sets_for_the_newest_alone() {
    for edition in RedisEdition::ALL {
        let server = Redis::start(edition).unwrap();
        let mut connection = connect(&server).await;
        let stock = stock();
        assert_eq!(
            redis::seen(&mut connection, &stock).await.unwrap(),
            Seen::default()
        );
        for (number, (text, came)) in [
            ("7", Checked::Accepted),
            ("7", Checked::Accepted),
            ("6", stale("7", "6")),
            ("10", Checked::Accepted),
            // Beyond what a floating-point number tells apart.
            ("9007199254740993", Checked::Accepted),
            (
                "9007199254740992",
                stale("9007199254740993", "9007199254740992"),
            ),
            ("18446744073709551615", Checked::Accepted),
            (
                "18446744073709551614",
                stale("18446744073709551615", "18446744073709551614"),
            ),
            ("1.1", Checked::Accepted),
            ("18446744073709551615", stale("1.1", "18446744073709551615")),
            ("4294967295.2", Checked::Accepted),
            ("4294967294.3", stale("4294967295.2", "4294967294.3")),
        ]
        .into_iter()
        .enumerate()
        {
            let before = held(&mut connection, COUNT).await;
            let set = redis::set(&mut connection, &stock, mark(text), COUNT, number)
                .await
                .unwrap();
            assert_eq!(set, came, "{edition:?} {text}");
            let expected = if came == Checked::Accepted {
                Some(number.to_string())
            } else {
                before
            };
            assert_eq!(
                held(&mut connection, COUNT).await,
                expected,
                "{edition:?} {text}"
            );
        }
        let expires: i64 = ::redis::cmd("PTTL")
            .arg(redis::key(&stock))
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(expires, -1, "the mark is not for ever");
    }
}

#[tokio::test]
async fn an_epoch_shuts_out_all_tokens_before_it_and_does_not_go_back() {
    let server = Redis::start(RedisEdition::Redis7).unwrap();
    let mut connection = connect(&server).await;
    let stock = stock();
    assert_eq!(
        redis::check(&mut connection, &stock, mark("1800000000000000"))
            .await
            .unwrap(),
        Checked::Accepted
    );
    let five = Seen::new(2, Token::new(5));
    for (epoch, seen) in [(2, Seen::new(2, None)), (1, Seen::new(2, None))] {
        assert_eq!(
            redis::advance(&mut connection, &stock, epoch)
                .await
                .unwrap(),
            seen
        );
    }
    assert!(matches!(
        redis::check(&mut connection, &stock, mark("1800000000000001"))
            .await
            .unwrap(),
        Checked::Stale(_)
    ));
    assert_eq!(
        redis::check(&mut connection, &stock, mark("2.5"))
            .await
            .unwrap(),
        Checked::Accepted
    );
    for (epoch, seen) in [(2, five), (1, five), (u32::MAX, Seen::new(u32::MAX, None))] {
        assert_eq!(
            redis::advance(&mut connection, &stock, epoch)
                .await
                .unwrap(),
            seen
        );
    }
}

#[tokio::test]
async fn a_key_that_holds_no_mark_lets_nobody_in() {
    let server = Redis::start(RedisEdition::Redis7).unwrap();
    let mut connection = connect(&server).await;
    let stock = stock();
    let key = redis::key(&stock);
    let list = "a list";
    for damaged in [
        "",
        "7",
        "00000000000000000000000000000x",
        "0000000000000000000000000000007",
        list,
    ] {
        ::redis::cmd("DEL")
            .arg(&key)
            .exec_async(&mut connection)
            .await
            .unwrap();
        if damaged == list {
            ::redis::cmd("LPUSH")
                .arg(&key)
                .arg("x")
                .exec_async(&mut connection)
                .await
                .unwrap();
        } else {
            put(&mut connection, &key, damaged).await;
        }
        for error in [
            redis::set(&mut connection, &stock, mark("9"), COUNT, 1)
                .await
                .unwrap_err(),
            redis::check(&mut connection, &stock, mark("9"))
                .await
                .unwrap_err(),
            redis::seen(&mut connection, &stock).await.unwrap_err(),
            redis::advance(&mut connection, &stock, 1)
                .await
                .unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{damaged:?}: {error}");
        }
        assert_eq!(held(&mut connection, COUNT).await, None);
    }
}

#[tokio::test]
async fn a_right_that_only_the_script_lacks_is_told_as_one() {
    for edition in [RedisEdition::Redis6, RedisEdition::Redis7] {
        let server = Redis::start(edition).unwrap();
        let mut connection = connect(&server).await;
        let user = "ACL SETUSER app on nopass ~* +evalsha +eval +script|load +get";
        for line in [user, "AUTH app any"] {
            let mut words = line.split(' ');
            let mut command = ::redis::cmd(words.next().unwrap());
            command.arg(words.collect::<Vec<_>>());
            command.exec_async(&mut connection).await.unwrap();
        }
        let refused = redis::set(&mut connection, &stock(), mark("9"), COUNT, 1).await;
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    }
}

#[tokio::test]
async fn a_script_of_the_callers_own_is_fenced_by_the_block_before_it() {
    let server = Redis::start(RedisEdition::Redis7).unwrap();
    let mut connection = connect(&server).await;
    let stock = stock();
    let take = ::redis::Script::new(&format!(
        "{}
        local seen = leasehold_fence(KEYS[1], ARGV[1])
        if seen then return -1 end
        return redis.call('DECRBY', KEYS[2], ARGV[2])",
        redis::LUA
    ));
    put(&mut connection, COUNT, "10").await;
    let mut offer = async |text: &str| -> i64 {
        let mut call = take.prepare_invoke();
        call.key(redis::key(&stock))
            .key(COUNT)
            .arg(redis::text(mark(text)))
            .arg(3);
        call.invoke_async(&mut connection).await.unwrap()
    };
    assert_eq!(offer("7").await, 7);
    assert_eq!(offer("6").await, -1);
    assert_eq!(offer("8").await, 4);
    assert_eq!(held(&mut connection, COUNT).await.unwrap(), "4");
    // What is no mark as `text` writes it writes nothing, and hinders nobody.
    for no_mark in ["9", "", "00000000000000000000000000000x"] {
        let mut call = take.prepare_invoke();
        call.key(redis::key(&stock)).key(COUNT).arg(no_mark).arg(3);
        let left: ::redis::RedisResult<i64> = call.invoke_async(&mut connection).await;
        left.unwrap_err();
    }
    assert_eq!(held(&mut connection, COUNT).await.unwrap(), "4");
    let seen = redis::seen(&mut connection, &stock).await.unwrap();
    assert_eq!(seen, mark("8").into());
}

#[tokio::test]
async fn a_server_killed_in_the_middle_keeps_write_and_mark_together() {
    let persistent = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = Redis::start_with(RedisEdition::Redis7, &persistent).unwrap();
    let stock = stock();
    let mut last: u64 = 0;
    for pause in [3, 17, 40] {
        let mut connection = connect(&server).await;
        // One at least, however soon the server is killed.
        last += 1;
        let first = Token::new(last).unwrap().into();
        let set = redis::set(&mut connection, &stock, first, COUNT, last).await;
        assert_eq!(set.unwrap(), Checked::Accepted);
        let writing = tokio::spawn(async move {
            let mut confirmed = last;
            for token in last + 1.. {
                let mark = Token::new(token).unwrap().into();
                match redis::set(&mut connection, &self::stock(), mark, COUNT, token).await {
                    Ok(checked) => assert_eq!(checked, Checked::Accepted),
                    Err(_) => break,
                }
                confirmed = token;
            }
            confirmed
        });
        tokio::time::sleep(Duration::from_millis(pause)).await;
        server.kill().unwrap();
        let confirmed = writing.await.unwrap();
        server.start_again().unwrap();
        let mut connection = connect(&server).await;
        let number: u64 = held(&mut connection, COUNT).await.unwrap().parse().unwrap();
        let seen = redis::seen(&mut connection, &stock).await.unwrap();
        assert_eq!(seen, Seen::new(0, Token::new(number)));
        assert!(
            number >= confirmed,
            "{confirmed} was confirmed, and {number} is there"
        );
        last = number;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_it_open_and_the_same_write_is_safe() {
    let mut server = Redis::start(RedisEdition::Redis7).unwrap();
    let mut connection = connect(&server).await;
    assert_eq!(
        redis::check(&mut connection, &stock(), mark("7"))
            .await
            .unwrap(),
        Checked::Accepted
    );
    server.kill().unwrap();
    let error = redis::set(&mut connection, &stock(), mark("7"), COUNT, 1)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ambiguous, "{error}");
    assert!(error.to_string().contains("\"stock\""), "{error}");
}
