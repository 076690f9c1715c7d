//! What the database thread works with: the connection, the open transaction, and what follows its commit.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::clock;
use rusqlite::Connection;

use crate::config::Settings;
use crate::error::Failure;
use crate::liveness::{Corpse, Liveness, Pulse};
use crate::open::{self, Files};
use crate::signal::Signals;
use crate::watch::{News, Watch};

type Tell = Arc<dyn Fn(News) + Send + Sync>;

/// What the thread works with.
pub(crate) struct Work {
    pub(crate) connection: Connection,
    /// Names our boot clock in rows.
    pub(crate) clock: String,
    pub(crate) live: Arc<Liveness>,
    pub(crate) signals: Arc<Signals>,
    ears: Ears,
    /// Has news of the watch come back to the thread.
    tell: Tell,
    path: PathBuf,
    /// What is open.
    files: Files,
    /// The open transaction: what is to be done after its commit.
    after: Option<After>,
    /// Why no transaction could be begun last, and when that was seen (boot time).
    refused: Option<(Failure, u64)>,
}

/// Whether this process hears its bell.
enum Ears {
    NotYet,
    Open(Watch),
    /// The system gave no inotify instance.
    Deaf,
}

/// What follows a commit.
#[derive(Default)]
struct After {
    /// Locks whose first waiter is to look.
    changed: BTreeSet<String>,
    rings: BTreeSet<String>,
    wakes: Vec<String>,
    corpses: Vec<Corpse>,
}

impl Work {
    pub(crate) fn new(
        settings: &Settings,
        tell: impl Fn(News) + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let opened = open::open(&settings.path)?;
        Ok(Self {
            connection: opened.connection,
            clock: crate::host::clock_name()?,
            live: Arc::new(Liveness::begin(opened.folder)?),
            signals: Arc::default(),
            ears: Ears::NotYet,
            tell: Arc::new(tell),
            path: opened.path,
            files: opened.files,
            after: None,
            refused: None,
        })
    }

    /// Begins a job that was asked for at `asked`.
    pub(crate) fn start(&mut self, asked: u64) {
        // Who asked before has waited as long for the same lock, and is not to wait once more.
        self.refused.take_if(|(_, at)| *at < asked);
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.after.is_some()
    }

    /// Makes sure that a transaction is open. False when it was opened just now: what was read before it may
    /// no longer be so.
    pub(crate) fn begin(&mut self) -> Result<bool, Failure> {
        if self.after.is_some() {
            return Ok(true);
        }
        if let Some((refused, _)) = &self.refused {
            return Err(refused.clone());
        }
        open::check_same_files(&self.path, &self.files)?;
        match self.execute("BEGIN IMMEDIATE", []) {
            Ok(_) => {
                self.after = Some(After::default());
                Ok(false)
            }
            Err(error) => {
                let failure = Failure::from(error);
                self.refused = Some((failure.clone(), clock::now().boot));
                Err(failure)
            }
        }
    }

    pub(crate) fn commit(&mut self) -> Result<(), Failure> {
        if self.after.is_none() {
            return Ok(());
        }
        let committed = self
            .call_waiters()
            .and_then(|()| self.execute("COMMIT", []).map_err(Failure::of_commit));
        if let Err(failure) = committed {
            self.roll_back(&failure);
            return Err(failure);
        }
        let after = self.after.take().unwrap_or_default();
        for corpse in after.corpses {
            corpse.bury();
        }
        // Before the answers: a process that has its answer may end.
        for id in &after.rings {
            self.live.folder.ring(id);
        }
        for owner in &after.wakes {
            self.signals.raise(owner);
        }
        Ok(())
    }

    pub(crate) fn roll_back(&mut self, failure: &Failure) {
        self.after = None;
        // Some errors have rolled it back already.
        if !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK", []);
        }
        if failure.may_be_full {
            // Empties the log into the file, so that the next transaction finds room in it.
            let _ = self
                .connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }

    /// Runs a statement that answers no rows; the number of rows changed.
    pub(crate) fn execute(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute(parameters)
    }

    /// The first waiter of this lock is to look, once this is committed.
    pub(crate) fn has_changed(&mut self, name: &str) {
        if let Some(after) = &mut self.after {
            after.changed.insert(name.to_owned());
        }
    }

    /// Has one owner act, once this is committed.
    pub(crate) fn call(&mut self, owner: String, live: String) {
        if let Some(after) = &mut self.after {
            if live == self.live.id {
                after.wakes.push(owner);
            } else {
                after.rings.insert(live);
            }
        }
    }

    /// Finds whom to wake for every lock that has changed.
    fn call_waiters(&mut self) -> Result<(), Failure> {
        while let Some(name) = self
            .after
            .as_mut()
            .and_then(|after| after.changed.pop_first())
        {
            while let Some((owner, live)) = self.to_be_called(&name)? {
                if live != self.live.id
                    && let Pulse::Dead(corpse) = self.live.folder.probe(&live)
                {
                    self.bury(corpse)?;
                    continue;
                }
                self.call(owner, live);
                break;
            }
        }
        Ok(())
    }

    /// Frees all that a dead process had. A transaction is open.
    pub(crate) fn bury(&mut self, corpse: Corpse) -> Result<(), Failure> {
        for name in self.clear_process(&corpse.id)? {
            self.has_changed(&name);
        }
        if let Some(after) = &mut self.after {
            after.corpses.push(corpse);
        }
        Ok(())
    }

    /// Opens this process's ears, before it takes a place in a queue; whether it hears.
    pub(crate) fn listen(&mut self) -> bool {
        if let Ears::NotYet = self.ears {
            let tell = self.tell.clone();
            let folder = self.live.folder.clone();
            self.ears = match Watch::start(folder, &self.live.id, move |news| tell(news)) {
                Ok(watch) => Ears::Open(watch),
                Err(error) => {
                    tracing::warn!(%error, "no inotify; waiters look every {:?}", crate::attempt::DEAF);
                    Ears::Deaf
                }
            };
        }
        matches!(self.ears, Ears::Open(_))
    }

    /// Hears of the death of another process from now on.
    pub(crate) fn listen_to(&self, live: &str) {
        if let Ears::Open(watch) = &self.ears
            && let Err(error) = watch.add(live)
        {
            // Its death is seen by looking, within a second.
            tracing::debug!(live, %error, "a holder can't be watched");
        }
    }

    pub(crate) fn heard(&mut self, news: News) -> Result<(), Failure> {
        match news {
            News::Bell => {
                for owner in self.rung_for()? {
                    self.signals.raise(&owner);
                }
                Ok(())
            }
            News::Death(id) => self.bury_if_dead(&id),
        }
    }

    fn bury_if_dead(&mut self, id: &str) -> Result<(), Failure> {
        let Pulse::Dead(corpse) = self.live.folder.probe(id) else {
            return Ok(());
        };
        if !self.is_known(id)? {
            corpse.bury();
            return Ok(());
        }
        self.begin()?;
        self.bury(corpse)
    }

    /// Clears up after processes that died while nobody waited for them.
    pub(crate) fn sweep(&mut self) -> Result<(), Failure> {
        for id in self.live.folder.ids() {
            if id != self.live.id {
                self.bury_if_dead(&id)?;
            }
        }
        if self.has_stale_observations()? {
            self.begin()?;
            self.clear_stale_observations()?;
        }
        Ok(())
    }

    /// Leaves the queues and says good-bye to the others.
    pub(crate) fn end(&mut self) {
        let left = self.leave_queues().and_then(|()| self.commit());
        if let Err(failure) = left {
            self.roll_back(&failure);
            tracing::debug!(failure.message, "places in queues are left behind");
        }
        self.ears = Ears::Deaf;
        self.live.end();
    }

    fn leave_queues(&mut self) -> Result<(), Failure> {
        let id = self.live.id.clone();
        if self.is_expected(&id)? {
            self.begin()?;
            for name in self.stop_expecting(&id)? {
                self.has_changed(&name);
            }
        }
        Ok(())
    }
}
