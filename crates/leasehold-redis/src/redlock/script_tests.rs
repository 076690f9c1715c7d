//! The scripts on a real server: what the simulated one can't tell.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::backend::Release;
use leasehold_core::{Name, Owner, clock};
use leasehold_testkit::servers::{Redis, RedisEdition};
use redis::{Connection, FromRedisValue, Value};

use super::exchange::Answer;
use super::hold::Extended;
use super::members::{Entry, Record};
use super::script::{self, BREAK, ENTER, LEAVE, LOOK, Notice, TAKE, WRITE};
use crate::renewer::renewal;
use crate::script::{Code, RENEW};

struct Node {
    _server: Redis,
    connection: Connection,
    url: String,
    name: Name,
}

fn nodes() -> impl Iterator<Item = Node> {
    RedisEdition::ALL.into_iter().map(|edition| {
        let server = Redis::start(edition).unwrap();
        let url = server.url();
        let connection = redis::Client::open(url.as_str())
            .unwrap()
            .get_connection()
            .unwrap();
        let mut node = Node {
            _server: server,
            connection,
            url,
            name: Name::new("jobs/report").unwrap(),
        };
        let first = entry(5, &[("h1", "r1"), ("h2", "")]);
        assert!(node.enter(&first, None));
        // Laid, it gives nothing yet.
        assert_eq!(node.take(owner(), "1", "take", "-"), Answer::Void);
        let laid = node.record().unwrap();
        assert!(node.enter(&first, Some(&laid)));
        node
    })
}

fn entry(floor: u64, runs: &[(&str, &str)]) -> Entry {
    let owned = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, run)| ((*name).into(), (*run).into()))
            .collect()
    };
    Entry {
        longest: Duration::from_secs(30),
        floor,
        runs: owned(&runs[..1]),
        earlier: owned(&runs[1..]),
    }
}

impl Node {
    fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        redis::cmd(words[0])
            .arg(&words[1..])
            .query(&mut self.connection)
            .unwrap()
    }

    fn call(&mut self, code: &Code, keys: &[String], args: &[&str]) -> Value {
        let mut command = redis::cmd("EVAL");
        command.arg(code.text).arg(keys.len()).arg(keys).arg(args);
        command.query(&mut self.connection).unwrap()
    }

    fn enter(&mut self, entry: &Entry, seen: Option<&Record>) -> bool {
        let args = script::entry(entry, seen, true);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.call(&ENTER, &[script::record_key().to_owned()], &args) == Value::Int(1)
    }

    fn record(&mut self) -> Option<Record> {
        script::record(&self.ask(&["HGETALL", script::record_key()]))
    }

    fn take(&mut self, owner: Owner, number: &str, mode: &str, channel: &str) -> Answer {
        let keys = script::keys(&self.name, owner);
        let hex = owner.to_hex();
        let args = [&hex, number, mode, "60000", "10000", channel, "{}"];
        script::taken(self.call(&TAKE, &keys, &args)).unwrap().0
    }

    fn write(&mut self, owner: Owner, token: u64) -> Answer {
        let [lock, counter, .., record] = script::keys(&self.name, owner);
        let args = [&owner.to_hex(), &*token.to_string()];
        script::written(&self.call(&WRITE, &[lock, counter, record], &args)).unwrap()
    }

    fn leave(&mut self, owner: Owner, tombstone: &str) -> (Release, Option<String>) {
        let keys = script::keys(&self.name, owner);
        let args = [&owner.to_hex(), "0", "0", tombstone];
        let left = script::left(self.call(&LEAVE, &keys, &args)).unwrap();
        (left.found, left.told.map(|waiter| waiter.owner))
    }

    fn renew(&mut self, owner: Owner) -> Extended {
        let [lock, counter, ..] = script::keys(&self.name, owner);
        let answer = self.call(&RENEW, &[lock, counter], &[&owner.to_hex(), "60000"]);
        match answer {
            Value::Array(answers) => {
                renewal(&answers[0], clock::now(), Duration::from_secs(60)).into()
            }
            other => panic!("{other:?}"),
        }
    }
}

fn owner() -> Owner {
    Owner::random().unwrap()
}

#[test]
fn a_lock_goes_through_its_life_on_every_server() {
    for mut node in nodes() {
        let (one, two) = (owner(), owner());
        let Answer::Granted { counter, micros } = node.take(one, "1", "take", "-") else {
            panic!("busy");
        };
        // The floor, as there was no counter.
        assert_eq!(counter, 5);
        assert!(micros > 1_700_000_000_000_000);
        assert_eq!(node.ask::<String>(&["GET", "jobs/report"]), one.to_hex());
        assert_eq!(node.write(one, micros), Answer::Written);
        assert_eq!(node.write(one, micros), Answer::Refused);
        assert_eq!(node.write(two, micros + 1), Answer::Refused);
        let floor = node.record().unwrap().floor;
        assert!(floor >= micros + 59_000_000, "{floor}");
        assert!(matches!(node.take(two, "1", "take", "-"), Answer::Busy(_)));
        assert_eq!(node.renew(one), Extended::Ours);
        assert_eq!(node.leave(two, "0").0, Release::Another);
        assert_eq!(node.leave(one, "0"), (Release::Freed, None));
        let Answer::Granted { counter, .. } = node.take(two, "2", "take", "-") else {
            panic!("busy");
        };
        assert_eq!(counter, micros);
    }
}

#[test]
fn who_waits_is_told_on_its_channel_and_who_does_not_listen_is_passed_over() {
    for mut node in nodes() {
        let (holder, dead, next) = (owner(), owner(), owner());
        node.take(holder, "1", "take", "-");
        let client = redis::Client::open(node.url.as_str()).unwrap();
        let mut listener = client.get_connection().unwrap();
        let mut messages = listener.as_pubsub();
        messages.subscribe("leasehold:c:next").unwrap();
        messages
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        for (who, channel) in [(dead, "leasehold:c:dead"), (next, "leasehold:c:next")] {
            assert!(matches!(
                node.take(who, "1", "take", channel),
                Answer::Busy(_)
            ));
        }
        let answer = node.leave(holder, "0");
        assert_eq!(answer, (Release::Freed, Some(next.to_hex())));
        let payload: String = messages.get_message().unwrap().get_payload().unwrap();
        let Some(Notice::Free { owner, .. }) = Notice::parse(&payload) else {
            panic!("{payload}");
        };
        assert_eq!(owner, next.to_hex());
        // In turn it isn't a newcomer's.
        assert!(matches!(node.take(dead, "2", "take", "-"), Answer::Busy(_)));
        assert!(matches!(
            node.take(next, "2", "turn", "-"),
            Answer::Granted { .. }
        ));
    }
}

#[test]
fn a_node_shows_no_token_that_its_holder_did_not_write() {
    for mut node in nodes() {
        let holder = owner();
        let shown = |node: &mut Node| {
            let looked = node.call(&LOOK, &script::look_keys(&node.name), &[]);
            let view = script::view(looked).unwrap();
            let tokens = [view.holder.token, view.counter];
            tokens.map(|token| token.map(leasehold_core::Token::get))
        };
        // What it begins with is the floor of all names, and may be above the token that a majority took.
        node.take(holder, "1", "take", "-");
        let [token, counter] = shown(&mut node);
        assert_eq!(token, None);
        let floor = counter.unwrap();
        assert_eq!(node.write(holder, floor), Answer::Refused);
        assert_eq!(shown(&mut node), [None, Some(floor)]);
        assert_eq!(node.write(holder, floor + 1), Answer::Written);
        assert_eq!(shown(&mut node), [Some(floor + 1); 2]);
        // The next one has none before it has written its own.
        node.leave(holder, "0");
        node.take(owner(), "1", "take", "-");
        assert_eq!(shown(&mut node), [None, Some(floor + 1)]);
    }
}

#[test]
fn a_broken_hold_is_told_and_shown() {
    for mut node in nodes() {
        let holder = owner();
        node.take(holder, "1", "take", "-");
        node.write(holder, 77);
        let looked = node.call(&LOOK, &script::look_keys(&node.name), &[]);
        let view = script::view(looked).unwrap();
        assert_eq!(view.holder.token.map(leasehold_core::Token::get), Some(77));
        let (hex, mark) = (holder.to_hex(), view.value.unwrap());
        let keys = script::break_keys(&node.name);
        assert_eq!(node.call(&BREAK, &keys, &[&mark, "0"]), Value::Int(1));
        assert_eq!(node.call(&BREAK, &keys, &[&mark, "0"]), Value::Int(0));
        let expired = Extended::Gone(leasehold_core::backend::LossReason::Expired);
        assert_eq!(node.renew(holder), expired);
        let [.., broken] = keys;
        assert_eq!(node.ask::<String>(&["GET", &broken]), hex);
        assert!(node.ask::<i64>(&["PTTL", &broken]) > 0);
    }
}

#[test]
fn a_record_is_merged_once_for_each_version_seen() {
    for mut node in nodes() {
        let seen = node.record().unwrap();
        assert_eq!((seen.floor, seen.durable), (5, true));
        assert_eq!(seen.version, seen.born.unwrap() + 2);
        assert_eq!(seen.runs["h1"], "r1");
        let newer = entry(3, &[("h1", "r2"), ("h2", "r9")]);
        // As of a report from before there was a record.
        assert!(!node.enter(&newer, None));
        assert!(node.enter(&newer, Some(&seen)));
        assert!(!node.enter(&newer, Some(&seen)));
        let merged = node.record().unwrap();
        assert_eq!(
            (merged.version, merged.floor, merged.born),
            (seen.version + 1, 5, seen.born),
            "a floor was lowered"
        );
        assert_eq!((&*merged.runs["h1"], &*merged.runs["h2"]), ("r2", "r9"));
        // Without runs, at any version: what is longer is raised.
        let raise = Entry {
            longest: Duration::from_secs(60),
            ..Entry::default()
        };
        assert!(node.enter(&raise, None));
        assert_eq!(node.record().unwrap().longest, Duration::from_secs(60));
        // A node that lost its record gets none by that.
        node.ask::<()>(&["FLUSHALL"]);
        assert!(!node.enter(&raise, None));
        assert_eq!(node.record(), None);
        assert_eq!(node.take(owner(), "1", "take", "-"), Answer::Void);
        assert_eq!(node.ask::<u64>(&["DBSIZE"]), 0);
        // What is late from its first use lays another record, by which it gives nothing; what followed does nothing.
        assert!(node.enter(&newer, None));
        let mut laid = seen.clone();
        laid.version -= 1;
        for earlier in [&laid, &seen] {
            assert!(!node.enter(&newer, Some(earlier)));
        }
        assert_ne!(node.record().unwrap().born, seen.born);
        assert_eq!(node.take(owner(), "1", "take", "-"), Answer::Void);
    }
}

#[test]
fn nothing_but_the_counter_and_the_record_is_left() {
    for mut node in nodes() {
        let (one, two) = (owner(), owner());
        node.take(one, "1", "take", "-");
        node.write(one, 9);
        node.take(two, "1", "take", "leasehold:c:two");
        node.leave(one, "0");
        node.leave(two, "0");
        let mut keys: Vec<String> = node.ask(&["KEYS", "*"]);
        keys.sort();
        assert_eq!(
            keys,
            ["leasehold:redlock", "leasehold:redlock:f:{jobs/report}"]
        );
        assert!(node.ask::<i64>(&["PTTL", "leasehold:redlock:f:{jobs/report}"]) > 0);
        // Nor by a try that comes after its tombstone.
        node.leave(one, "60000");
        assert_eq!(node.take(one, "2", "take", "-"), Answer::Void);
    }
}
