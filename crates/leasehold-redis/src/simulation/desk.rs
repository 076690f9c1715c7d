//! A server and clients without a network between them: what is sent lands when the test says so.

use std::time::Duration;

use leasehold_core::Token;
use leasehold_core::backend::{Attempt, Busy, Grant};
use leasehold_core::clock::Moment;
use leasehold_testkit::sim::MS;
use redis::Value;

use super::lua::{Interpreter, Script, Texts};
use crate::attempt::Tries;
use crate::keys::Keys;
use crate::reply::{self, Message};

pub(super) const TTL: Duration = Duration::from_secs(10);
pub(super) const START: u64 = 1_790_000_000_000;

/// The server, told what time it is with each request.
pub(super) struct Desk {
    pub(super) redis: Interpreter,
    pub(super) keys: Keys,
}

/// A client without a network: what it sends lands when the test says so.
pub(super) struct Waiter {
    pub(super) owner: leasehold_core::Owner,
    pub(super) channel: String,
    pub(super) tries: Tries,
    pub(super) token: Option<Token>,
}

/// All clocks agree, and show this many milliseconds.
pub(super) fn at(ms: u64) -> Moment {
    Moment {
        boot: ms * MS,
        monotonic: ms * MS,
        real: ms * MS,
    }
}

pub(super) fn name() -> leasehold_core::Name {
    leasehold_core::Name::new("n").unwrap()
}

impl Waiter {
    pub(super) fn new(number: u64, waits: bool) -> Self {
        Self {
            owner: format!("{number:032x}").parse().unwrap(),
            channel: format!("c{number}"),
            tries: Tries::new(TTL, waits),
            token: None,
        }
    }

    pub(super) fn granted(&mut self, desk: &Desk, ms: u64) -> Grant {
        let number = self.tries.send(at(ms));
        match desk.lands(self, number, ms) {
            Attempt::Granted(grant) => {
                self.token = Some(grant.token);
                grant
            }
            Attempt::Busy(busy) => panic!("busy: {busy:?}"),
        }
    }

    pub(super) fn busy(&mut self, desk: &Desk, ms: u64) -> Busy {
        let number = self.tries.send(at(ms));
        match desk.lands(self, number, ms) {
            Attempt::Busy(busy) => busy,
            Attempt::Granted(grant) => panic!("granted: {grant:?}"),
        }
    }

    /// Takes a message in.
    pub(super) fn told(&mut self, payload: &str) -> Option<Grant> {
        let message = Message::parse(payload).unwrap();
        assert_eq!(message.owner(), self.owner);
        match message {
            Message::Granted {
                token,
                number,
                alive,
                ..
            } => self.tries.handed(token, number, alive),
            other => panic!("{other:?}"),
        }
    }
}

impl Desk {
    pub(super) fn new() -> Self {
        Self::with(&Texts::shipped())
    }

    pub(super) fn with(texts: &Texts) -> Self {
        let redis = Interpreter::new(texts);
        // Everybody listens.
        for number in 0..10 {
            redis.store().listeners.insert(format!("c{number}"), 1);
        }
        let keys = Keys::of(&name());
        Self { redis, keys }
    }

    pub(super) fn now(&self, ms: u64) {
        self.redis.store().micros = (START + ms) * 1000;
    }

    pub(super) fn ask(&self, script: Script, ms: u64, owner: &Waiter, args: &[String]) -> Value {
        self.now(ms);
        let keys = [
            self.keys.lock.clone(),
            self.keys.counter.clone(),
            self.keys.queue.clone(),
            self.keys.waiters.clone(),
            Keys::tombstone(&name(), owner.owner),
            Keys::broken(&name()),
        ];
        self.redis.run(script, &keys, args).unwrap()
    }

    /// An operator takes the lock from whoever has it.
    pub(super) fn break_hold(&self, ms: u64) {
        self.now(ms);
        let keys = [
            self.keys.lock.clone(),
            self.keys.counter.clone(),
            self.keys.queue.clone(),
            self.keys.waiters.clone(),
            Keys::broken(&name()),
        ];
        self.redis
            .run(Script::Break, &keys, &[String::new()])
            .unwrap();
    }

    /// The raw answer to a try that lands now.
    pub(super) fn processes(&self, waiter: &Waiter, number: u64, ms: u64) -> Value {
        let args = [
            waiter.owner.to_hex(),
            number.to_string(),
            waiter.tries.ttl().as_millis().to_string(),
            waiter.tries.alive().as_millis().to_string(),
            u8::from(waiter.tries.waits()).to_string(),
            waiter.channel.clone(),
            "{}".to_owned(),
        ];
        self.ask(Script::Acquire, ms, waiter, &args)
    }

    /// A try lands and is answered.
    pub(super) fn lands(&self, waiter: &mut Waiter, number: u64, ms: u64) -> Attempt {
        let answer = self.processes(waiter, number, ms);
        let reply = reply::try_reply(answer).unwrap();
        waiter.tries.answered(number, reply).unwrap()
    }

    pub(super) fn release(&self, waiter: &Waiter, ms: u64) -> String {
        let args = [
            waiter.owner.to_hex(),
            "0".to_owned(),
            waiter.tries.tombstone().as_millis().to_string(),
            "0".to_owned(),
            waiter
                .token
                .map_or_else(String::new, |token| token.to_string()),
        ];
        match self.ask(Script::Release, ms, waiter, &args) {
            Value::BulkString(text) => String::from_utf8(text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn renew(&self, waiter: &Waiter, ms: u64) -> i64 {
        self.now(ms);
        let keys = [self.keys.lock.clone(), self.keys.counter.clone()];
        let args = [waiter.owner.to_hex(), TTL.as_millis().to_string()];
        match self.redis.run(Script::Renew, &keys, &args).unwrap() {
            Value::Array(answers) => match answers[..] {
                [Value::Int(answer)] => answer,
                _ => panic!("{answers:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn holder(&self, ms: u64) -> Option<String> {
        self.now(ms);
        self.redis.store().text(&self.keys.lock)
    }

    pub(super) fn held_by(&self, waiter: &Waiter, ms: u64) -> bool {
        self.holder(ms) == Some(waiter.owner.to_hex())
    }

    /// The only message that was published since the last one.
    pub(super) fn message(&self) -> (String, String) {
        let mut published = std::mem::take(&mut self.redis.store().published);
        assert_eq!(published.len(), 1, "{published:?}");
        published.remove(0)
    }

    pub(super) fn left(&self, ms: u64) -> Vec<String> {
        self.now(ms);
        self.redis.store().names()
    }
}
