//! One node with the connections to it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Release;
use leasehold_core::{Holder, Result};
use redis::{Value, cmd};

use super::exchange::Answer;
use super::hold::{Left, Waiter};
use super::inbox::{FromNode, Waiters};
use super::members::{Entry, Report};
use super::nodes::Node;
use super::script::{self, BREAK, ENTER, LEAVE, LOOK, Notice, TAKE, WRITE};
use super::seat::Seat;
use crate::check::{self, Info};
use crate::keys::Family;
use crate::link::{Failure, Link, Server};
use crate::renewer::Renewer;
use crate::reply;
use crate::servers::Servers;
use crate::subscriber::Subscription;

#[derive(Debug)]
pub(super) struct Site {
    pub(super) seat: Arc<Seat>,
    /// Grants and releases: on the caller's runtime.
    pub(super) grants: Arc<Link>,
    /// What the node says of itself, and renewals: on the keeper's.
    keeper: Arc<Link>,
    pub(super) renewer: Renewer,
    pub(super) messages: Subscription<FromNode>,
}

/// What a node says of itself.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) report: Report,
    pub(super) info: Info,
}

impl Site {
    pub(super) fn new(
        node: Node,
        seat: Seat,
        channel: &Arc<str>,
        waiters: &Waiters,
    ) -> Result<Self> {
        let seat = Arc::new(seat);
        let server = || Server::Node(seat.clone());
        let link = || Arc::new(Link::new(server(), seat.patience()));
        let keeper = link();
        let servers = Arc::new(Servers::One(keeper.clone()));
        let readers = FromNode {
            node,
            waiters: waiters.clone(),
        };
        Ok(Self {
            grants: link(),
            renewer: Renewer::start(servers, Family::Redlock)?,
            messages: Subscription::new(server(), channel.clone(), readers),
            keeper,
            seat,
        })
    }

    /// Asks the node about itself, all over one connection.
    pub(super) async fn account(&self) -> Result<Account> {
        let questions = [
            cmd("INFO"),
            cmd("HGETALL").arg(script::record_key()).to_owned(),
            cmd("CONFIG").arg("GET").arg("appendfsync").to_owned(),
        ];
        let answers = self.keeper.commands(&questions).await?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let info = check::read_info(known(next())?)?;
        check::stands_alone(&info)?;
        let fields = redis::from_redis_value(known(next())?);
        let fields = fields.map_err(|error| reply::unexpected(&error))?;
        // Who may lock need not have the right to look: then it counts as one that forgets.
        let fsync: Option<Vec<String>> = redis::from_redis_value(next()).ok();
        let always = fsync.is_some_and(|pair| pair.get(1).is_some_and(|value| value == "always"));
        let number = |name| check::field(&info, name).parse().unwrap_or(0);
        // It goes on with the history of the master that it followed.
        let promoted = check::field(&info, "master_replid2").contains(|digit| digit != '0');
        let report = Report {
            run: check::field(&info, "run_id").to_owned(),
            master: check::field(&info, "role") == "master",
            uptime: Duration::from_secs(number("uptime_in_seconds")),
            promoted,
            durable: check::field(&info, "aof_enabled") == "1" && always,
            record: script::record(&fields),
        };
        Ok(Account { report, info })
    }

    /// Merges into its record; whether it did.
    pub(super) async fn enter(&self, entry: &Entry, report: &Report) -> Result<bool> {
        let args = script::entry(entry, report.record.as_ref(), report.durable);
        self.entered(&self.keeper, &args).await
    }

    /// Has it know a longer TTL; whether it does now.
    pub(super) async fn raise(&self, longest: Duration) -> Result<bool> {
        let entry = Entry {
            longest,
            ..Entry::default()
        };
        let args = script::entry(&entry, None, false);
        self.entered(&self.grants, &args).await
    }

    async fn entered(&self, link: &Link, args: &[String]) -> Result<bool> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let keys = [script::record_key()];
        Ok(link.call_uncounted(&ENTER, &keys, &args).await? == Value::Int(1))
    }

    /// One request for the lock or for a place. One that waits is told on the channel, and must hear it: one that
    /// nobody can tell would be passed over.
    pub(super) async fn take(
        &self,
        keys: &[String; 6],
        args: &[String],
        waits: bool,
    ) -> Result<(Answer, Option<Holder>), Failure> {
        if waits {
            let ready = tokio::time::timeout(self.seat.patience(), self.messages.ready());
            let ready = ready.await.unwrap_or_else(|_| Err(silent()));
            ready.map_err(Failure::Unsent)?;
        }
        let answer = self.grants.call(&TAKE, &strs(keys), &strs(args)).await?;
        let answer = script::taken(answer).map_err(Failure::Sent)?;
        if answer.0 == Answer::Void {
            self.seat.doubt();
        }
        Ok(answer)
    }

    pub(super) async fn write(
        &self,
        keys: &[String; 6],
        args: &[String],
    ) -> Result<(Answer, Option<Holder>), Failure> {
        let [lock, counter, _, _, _, record] = keys;
        let keys = [lock.as_str(), counter, record];
        let answer = self.grants.call(&WRITE, &keys, &strs(args)).await?;
        let answer = script::written(&answer).map_err(Failure::Sent)?;
        Ok((answer, None))
    }

    /// Also at a node that doesn't count: what is left there goes. Once more where the connection had gone stale; if it
    /// isn't there any more then, the first may be what freed it.
    pub(super) async fn leave(&self, keys: &[String; 6], args: &[String]) -> Result<Left, Failure> {
        let (keys, args) = (strs(keys), strs(args));
        let stale = match self.grants.call_uncounted(&LEAVE, &keys, &args).await {
            Err(Failure::Stale(error)) => error,
            answer => return script::left(answer?).map_err(Failure::Sent),
        };
        let again = self.grants.call_uncounted(&LEAVE, &keys, &args).await?;
        match script::left(again).map_err(Failure::Sent)? {
            left if left.found == Release::Freed => Ok(left),
            _ => Err(Failure::Stale(stale)),
        }
    }

    /// Tells a waiter that it comes next. If it isn't heard the waiter looks by itself later.
    pub(super) async fn tell(&self, waiter: &Waiter) -> Result<()> {
        let mut publish = cmd("PUBLISH");
        publish
            .arg(&waiter.channel)
            .arg(Notice::next(&waiter.owner));
        self.grants.command(&publish).await.map(drop)
    }

    pub(super) async fn look(&self, keys: &[String; 4]) -> Result<super::look::View> {
        script::view(self.grants.call(&LOOK, &strs(keys), &[]).await?)
    }

    /// Takes the lock from the owner with this mark. It isn't there after it, whatever the answer is.
    pub(super) async fn take_away(&self, keys: &[String; 5], mark: &str) -> Result<()> {
        // Numbers of requests begin at one: releases are told apart by them.
        let answer = self.grants.call(&BREAK, &strs(keys), &[mark, "0"]).await?;
        match answer {
            Value::Int(_) => Ok(()),
            other => Err(reply::unexpected(&other)),
        }
    }

    pub(super) fn close(&self) {
        self.grants.close();
    }
}

fn known(answer: Value) -> Result<Value> {
    crate::script::known(answer).map_err(crate::error::sent)
}

fn silent() -> leasehold_core::Error {
    leasehold_core::Error::new(
        leasehold_core::ErrorKind::Unavailable,
        "it didn't take the subscription in time",
    )
}

fn strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
