//! Where records of what happened once are kept: the one place that knows which stores keep them.

use std::time::Duration;

use leasehold::{Guard, Name, StoreUrl};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, Record, Success};

use super::stores::{Mysql, Postgres, Redis, Sqlite};
use crate::commands::{Context, database};
use crate::exit::Failure;

/// The records at the store that was chosen.
pub(super) struct Records {
    kept: Kept,
    /// What the store puts before keys and locks.
    pub(super) prefix: String,
    /// The store's URL without secrets.
    pub(super) shown: String,
}

enum Kept {
    Mysql(Mysql),
    Postgres(Postgres),
    Redis(Redis),
    Sqlite(Sqlite),
}

/// Asks whichever store it is, until it answers, for as long as an answer may take.
macro_rules! ask {
    ($records:ident, $context:ident, $store:ident => $question:expr) => {
        ask!($records, $context, $context.settings.connect_timeout.value, $store => $question)
    };
    ($records:ident, $context:ident, $most:expr, $store:ident => $question:expr) => {
        match &$records.kept {
            Kept::Mysql($store) => $records.answer($context, $most, async || $question.await).await,
            Kept::Postgres($store) => $records.answer($context, $most, async || $question.await).await,
            Kept::Redis($store) => $records.answer($context, $most, async || $question.await).await,
            Kept::Sqlite($store) => $records.answer($context, $most, async || $question).await,
        }
    };
}

impl Records {
    /// The records at the store that was chosen, which isn't asked yet.
    pub(super) async fn of(context: &Context) -> Result<Self, Failure> {
        let (url, shown) = context.chosen()?;
        let kept = kept(context, url).await;
        let (kept, prefix) = kept.map_err(|failure| failure.during("connect").on(&shown))?;
        Ok(Self {
            kept,
            prefix,
            shown,
        })
    }

    /// A key, or a lock, as the store has it.
    pub(super) fn name(&self, name: &str) -> Result<Name, Failure> {
        Ok(Name::new(&format!("{}{name}", self.prefix))?)
    }

    /// The success, if it has happened and still counts.
    pub(super) async fn done(
        &self,
        context: &Context,
        once: &Once,
        lock: &Name,
    ) -> Result<Option<Success>, Failure> {
        ask!(self, context, store => store.done(once, lock))
    }

    /// Begins an attempt. Asked again after an answer that was lost, it finds itself running.
    pub(super) async fn begin(
        &self,
        context: &Context,
        once: &Once,
        pass: &Pass,
    ) -> Result<Begun, Failure> {
        ask!(self, context, store => store.begin(once, pass))
    }

    /// Records a success, if the lock is still held when it is about to be committed; `None` if it isn't. Makes room
    /// then; that it can't changes nothing. A store that is away is waited for as long as the lock may last without it:
    /// what has been done would be done again.
    pub(super) async fn finish(
        &self,
        context: &Context,
        once: &Once,
        pass: &Pass,
        guard: &Guard,
    ) -> Result<Option<Finished>, Failure> {
        let most = context.settings.connect_timeout.value;
        let most = most.max(guard.remaining());
        let is_held = || guard.is_held();
        ask!(self, context, most, store => store.finish(once, pass, &is_held))
    }

    /// Says that an attempt failed, for `list` to show.
    pub(super) async fn fail(
        &self,
        context: &Context,
        key: &Name,
        pass: &Pass,
    ) -> Result<bool, Failure> {
        ask!(self, context, store => store.fail(key, pass))
    }

    /// The records of all keys that begin with this.
    pub(super) async fn list(
        &self,
        context: &Context,
        prefix: &str,
    ) -> Result<Vec<Record>, Failure> {
        let all = format!("{}{prefix}", self.prefix);
        ask!(self, context, store => store.list(&all))
    }

    /// Forgets a key; answers whether there was a record.
    pub(super) async fn forget(&self, context: &Context, key: &Name) -> Result<bool, Failure> {
        ask!(self, context, store => store.forget(key))
    }

    async fn answer<T>(
        &self,
        context: &Context,
        most: Duration,
        question: impl AsyncFn() -> leasehold::Result<T>,
    ) -> Result<T, Failure> {
        // The key has been checked: what can't be right is in the store.
        let question = async || {
            question()
                .await
                .map_err(|error| Failure::connecting(&error))
        };
        let answer = context.answer_within(most, question).await;
        answer.map_err(|failure| failure.on(&self.shown))
    }
}

/// The store of this URL, and what it puts before names.
async fn kept(context: &Context, url: StoreUrl) -> Result<(Kept, String), Failure> {
    let mut bare = url.clone();
    let prefix = bare.take("prefix").unwrap_or_default();
    let kept = match url.scheme() {
        "mysql" | "mariadb" => Kept::Mysql(Mysql(bare)),
        "postgres" | "postgresql" => Kept::Postgres(Postgres(bare)),
        "redis" | "rediss" | "redis+unix" => Kept::Redis(Redis(bare)),
        "sqlite" => Kept::Sqlite(Sqlite(database::sqlite(context, url, &bare).await?)),
        other => {
            return Err(Failure::config(format!(
                "a store of {other}:// keeps no records of what happened once; sqlite:// does, and for several hosts \
                 mysql://, mariadb://, postgres://, redis://, rediss:// and redis+unix://: name one of them with --store"
            )));
        }
    };
    Ok((kept, prefix))
}
