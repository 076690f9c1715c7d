//! The database thread: it owns the connection and does the jobs of one backend in the order they came.
//!
//! A job that only reads is answered at once. The first job that writes opens a transaction; those queued behind it
//! join it, and all are answered after the commit: one wait for the disk for all of them. That the order is kept
//! makes a release definite: it comes after every try of its contender, answered or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result, clock};
use tokio::sync::oneshot;

use crate::config::Settings;
use crate::error::Failure;
use crate::liveness::Liveness;
use crate::signal::Signals;
use crate::table::{boot, nanoseconds};
use crate::watch::News;
use crate::work::Work;

/// The most jobs in one transaction: bounds how long the first of them waits.
const BATCH: usize = 128;
/// How long after its first hold a process begins to listen. Closing an inotify instance takes the kernel several
/// milliseconds, which a short command's end would wait for.
const EARS_AFTER: Duration = Duration::from_millis(50);

type Task = Box<dyn FnOnce(&mut Work) -> Answer + Send>;
type Tell = Box<dyn FnOnce(Option<&Failure>) + Send>;

enum Job {
    /// A task, and when it was asked for (boot time).
    Run(Task, u64),
    /// The first hold began.
    Listen,
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
        // News doesn't keep the thread going.
        let tell = move |news| {
            if let Some(post) = post.upgrade() {
                let (job, _) = job(Abandoned::Done, move |work| work.heard(news));
                let _ = post.send(job);
            }
        };
        let (ready, opened) = oneshot::channel();
        std::thread::Builder::new()
            .name("leasehold-sqlite".into())
            .spawn(move || match Work::new(&settings, tell) {
                Ok(work) => {
                    let _ = ready.send(Ok((work.live.clone(), work.signals.clone())));
                    let listens_at = None;
                    Service {
                        work,
                        jobs,
                        listens_at,
                    }
                    .run();
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
        let (job, reply) = job(abandoned, run);
        // Without a thread the job is dropped, and its reply says so.
        let _ = self.jobs.send(job);
        reply
    }

    /// Has this process hear of it when a hold is taken away, after [`EARS_AFTER`] at the latest.
    pub(crate) fn listen(&self) {
        if !self.listens.swap(true, Ordering::Relaxed) {
            let _ = self.jobs.send(Job::Listen);
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
/// A job and the answer to it.
fn job<T: Send + 'static>(
    abandoned: Abandoned,
    run: impl FnOnce(&mut Work) -> Result<T, Failure> + Send + 'static,
) -> (Job, Reply<T>) {
    let (reply, answer) = oneshot::channel();
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
    (Job::Run(task, clock::now().boot), Reply(answer))
}

/// The jobs of one backend, on its thread.
struct Service {
    work: Work,
    jobs: Receiver<Job>,
    /// When to begin to listen, in boot time.
    listens_at: Option<i64>,
}

impl Service {
    /// Until it is closed or nobody is left who could have a job.
    fn run(mut self) {
        let mut closed = None;
        while closed.is_none()
            && let Some(first) = self.next()
        {
            closed = self.batch(first);
        }
        self.work.end();
        // The file is closed and the watch told to stop before the caller hears of it.
        drop(self);
        if let Some(closed) = closed {
            let _ = closed.send(());
        }
    }

    /// The next job; none where nobody can have one any more.
    fn next(&mut self) -> Option<Job> {
        let Some(at) = self.listens_at else {
            return self.jobs.recv().ok();
        };
        let left = u64::try_from(at.saturating_sub(boot())).unwrap_or(0);
        if left > 0 {
            match self.jobs.recv_timeout(Duration::from_nanos(left)) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.listens_at = None;
        let (job, _) = job(Abandoned::Done, |work| {
            work.listen();
            // What was rung before.
            work.heard(News::Bell)
        });
        Some(job)
    }

    /// Does `first` and what is queued behind it; whoever wants to hear of the end, when that was among it.
    fn batch(&mut self, first: Job) -> Option<oneshot::Sender<()>> {
        let Self {
            work,
            jobs,
            listens_at,
        } = self;
        let mut answers = Vec::new();
        let mut closed = None;
        for job in std::iter::once(first).chain(jobs.try_iter()).take(BATCH) {
            let task = match job {
                Job::Run(task, asked) => {
                    work.start(asked);
                    task
                }
                Job::Listen => {
                    *listens_at = Some(boot().saturating_add(nanoseconds(EARS_AFTER)));
                    continue;
                }
                Job::Close(sender) => {
                    closed = Some(sender);
                    break;
                }
            };
            let answer = task(work);
            if !work.is_writing() {
                (answer.tell)(None);
                continue;
            }
            let failed = answer.failed.clone();
            answers.push(answer);
            if let Some(failure) = failed {
                work.roll_back(&failure);
                tell(&mut answers, Some(&failure));
            }
        }
        let failure = work.commit().err();
        tell(&mut answers, failure.as_ref());
        closed
    }
}

fn tell(answers: &mut Vec<Answer>, failure: Option<&Failure>) {
    for answer in answers.drain(..) {
        (answer.tell)(failure);
    }
}
