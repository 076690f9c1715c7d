//! The database thread: it owns the connection and does the jobs of one backend in the order they came.
//!
//! A job that only reads is answered at once. The first job that writes opens a transaction; those queued behind it
//! join it, and all are answered after the commit: one wait for the disk for all of them. That the order is kept
//! makes a release definite: it comes after every try of its contender, answered or not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use leasehold_core::{Error, ErrorKind, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::config::Settings;
use crate::error::Failure;
use crate::liveness::{Corpse, Liveness, Pulse};
use crate::open;
use crate::signal::Signals;
use crate::watch::{News, Watch};

/// The most jobs in one transaction: bounds how long the first of them waits.
const BATCH: usize = 128;

type Task = Box<dyn FnOnce(&mut Work) -> Answer + Send>;
type Tell = Box<dyn FnOnce(Option<&Failure>) + Send>;

enum Job {
    Run(Task),
    Close(oneshot::Sender<()>),
}

/// What a task came to, to be told once it is certain.
struct Answer {
    failed: Option<Failure>,
    tell: Tell,
}

/// The thread as the rest of the backend sees it. It ends when this and all jobs are gone.
#[derive(Debug)]
pub(crate) struct Database {
    jobs: Arc<Sender<Job>>,
    listens: AtomicBool,
    pub(crate) live: Arc<Liveness>,
    pub(crate) signals: Arc<Signals>,
}

/// The answer to a job, when there is one.
#[derive(Debug)]
pub(crate) struct Reply<T>(oneshot::Receiver<Result<T, Failure>>);

impl<T> Reply<T> {
    /// # Cancel safety
    /// Safe: the answer can be waited for again.
    pub(crate) async fn answer(&mut self) -> Result<T> {
        match (&mut self.0).await {
            Ok(answer) => answer.map_err(Error::from),
            Err(_) => Err(Error::new(
                ErrorKind::Unavailable,
                "this connection to the store was closed; connect again",
            )),
        }
    }
}

/// Whether a job is done that nobody waits for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    Done,
    Skipped,
}

impl Database {
    /// Opens the file on a thread of its own.
    pub(crate) async fn open(settings: Settings) -> Result<Self> {
        let (sender, jobs) = channel();
        let sender = Arc::new(sender);
        let post = Arc::downgrade(&sender);
        let (ready, opened) = oneshot::channel();
        std::thread::Builder::new()
            .name("leasehold-sqlite".into())
            .spawn(move || match Work::new(&settings, post) {
                Ok(work) => {
                    let _ = ready.send(Ok((work.live.clone(), work.signals.clone())));
                    work.serve(&jobs);
                }
                Err(failure) => {
                    let _ = ready.send(Err(failure));
                }
            })
            .map_err(|error| {
                Error::new(
                    ErrorKind::Unavailable,
                    "the thread of the database can't be started",
                )
                .because(error)
            })?;
        let (live, signals) = Reply(opened).answer().await?;
        let database = Self {
            jobs: sender,
            listens: AtomicBool::new(false),
            live,
            signals,
        };
        database.post(Work::sweep);
        Ok(database)
    }

    /// Queues a job; it is in the queue when this returns.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        abandoned: Abandoned,
        run: impl FnOnce(&mut Work) -> Result<T, Failure> + Send + 'static,
    ) -> Reply<T> {
        let (reply, answer) = oneshot::channel::<Result<T, Failure>>();
        let task: Task = Box::new(move |work| {
            if abandoned == Abandoned::Skipped && reply.is_closed() {
                return Answer {
                    failed: None,
                    tell: Box::new(|_| {}),
                };
            }
            let outcome = run(work);
            Answer {
                failed: outcome.as_ref().err().cloned(),
                tell: Box::new(move |failure| {
                    let answer = failure.map_or(outcome, |failure| Err(failure.clone()));
                    let _ = reply.send(answer);
                }),
            }
        });
        // Without a thread the reply is dropped, which says so.
        let _ = self.jobs.send(Job::Run(task));
        Reply(answer)
    }

    /// Has this process hear of it when a hold is taken away.
    pub(crate) fn listen(&self) {
        if !self.listens.swap(true, Ordering::Relaxed) {
            self.post(|work| {
                work.listen();
                // What was rung before.
                work.heard(News::Bell)
            });
        }
    }

    fn post(&self, run: impl FnOnce(&mut Work) -> Result<(), Failure> + Send + 'static) {
        drop(self.submit(Abandoned::Done, run));
    }

    /// Does what is queued and ends the thread.
    pub(crate) async fn close(&self) {
        let (closed, done) = oneshot::channel();
        if self.jobs.send(Job::Close(closed)).is_ok() {
            let _ = done.await;
        }
    }
}

/// What the thread works with.
pub(crate) struct Work {
    pub(crate) connection: Connection,
    /// Names our boot clock in rows.
    pub(crate) clock: String,
    pub(crate) live: Arc<Liveness>,
    signals: Arc<Signals>,
    ears: Ears,
    post: Weak<Sender<Job>>,
    path: PathBuf,
    /// Device and inode of the file that is open.
    file: (u64, u64),
    /// The open transaction: what is to be done after its commit.
    after: Option<After>,
    /// Why no transaction could be begun for this batch.
    refused: Option<Failure>,
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
    fn new(settings: &Settings, post: Weak<Sender<Job>>) -> Result<Self, Failure> {
        let opened = open::open(&settings.path)?;
        Ok(Self {
            connection: opened.connection,
            clock: crate::host::clock_name()?,
            live: Arc::new(Liveness::begin(opened.folder)?),
            signals: Arc::default(),
            ears: Ears::NotYet,
            post,
            path: opened.path,
            file: opened.file,
            after: None,
            refused: None,
        })
    }

    fn serve(mut self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            if let Some(closed) = self.batch(first, jobs) {
                self.end();
                // The file is closed and the watch told to stop before the caller hears of it.
                drop(self);
                let _ = closed.send(());
                return;
            }
        }
        self.end();
    }

    /// Does `first` and what is queued behind it; whoever wants to hear of the end, when that was among it.
    fn batch(&mut self, first: Job, jobs: &Receiver<Job>) -> Option<oneshot::Sender<()>> {
        self.refused = open::check_same_file(&self.path, self.file).err();
        let mut answers = Vec::new();
        let mut closed = None;
        for job in std::iter::once(first).chain(jobs.try_iter()).take(BATCH) {
            let task = match job {
                Job::Run(task) => task,
                Job::Close(sender) => {
                    closed = Some(sender);
                    break;
                }
            };
            let answer = task(self);
            if self.after.is_none() {
                (answer.tell)(None);
                continue;
            }
            let failed = answer.failed.clone();
            answers.push(answer);
            if let Some(failure) = failed {
                self.roll_back(&failure);
                tell(&mut answers, Some(&failure));
            }
        }
        let failure = self.commit().err();
        tell(&mut answers, failure.as_ref());
        closed
    }

    /// Makes sure that a transaction is open. False when it was opened just now: what was read before it may
    /// no longer be so.
    pub(crate) fn begin(&mut self) -> Result<bool, Failure> {
        if self.after.is_some() {
            return Ok(true);
        }
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        match self.execute("BEGIN IMMEDIATE", []) {
            Ok(_) => {
                self.after = Some(After::default());
                Ok(false)
            }
            Err(error) => {
                // The others of this batch waited as long for the same.
                self.refused = Some(error.into());
                self.refused.clone().map_or(Ok(false), Err)
            }
        }
    }

    fn commit(&mut self) -> Result<(), Failure> {
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

    fn roll_back(&mut self, failure: &Failure) {
        self.after = None;
        // Some errors have rolled it back already.
        if !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK", []);
        }
        if failure.is_full {
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
            let post = self.post.clone();
            let tell = move |news| {
                if let Some(post) = post.upgrade() {
                    let task: Task = Box::new(move |work: &mut Work| Answer {
                        failed: work.heard(news).err(),
                        tell: Box::new(|_| {}),
                    });
                    let _ = post.send(Job::Run(task));
                }
            };
            let folder = self.live.folder.clone();
            self.ears = match Watch::start(folder, &self.live.id, tell) {
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

    fn heard(&mut self, news: News) -> Result<(), Failure> {
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
    fn sweep(&mut self) -> Result<(), Failure> {
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
    fn end(&mut self) {
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
        if self.is_waiting(&id)? {
            self.begin()?;
            for name in self.clear_waiters(&id)? {
                self.has_changed(&name);
            }
        }
        Ok(())
    }
}

fn tell(answers: &mut Vec<Answer>, failure: Option<&Failure>) {
    for answer in answers.drain(..) {
        (answer.tell)(failure);
    }
}
