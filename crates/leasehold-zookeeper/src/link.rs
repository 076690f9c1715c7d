//! A session with the ensemble: one connection at a time, and to another server when that fails.
//!
//! Its task sends requests in the order they come and reads their answers in the same order. A request that was sent
//! and not answered may take effect yet, but never after one that was sent later, on this connection or the next, was
//! answered: a server works at one client's requests in order, and the leader refuses what comes from a server that
//! the session has left. What waited for a connection that broke is told so; the rest goes out on the next.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::clock::{self, Moment};
use leasehold_core::session::Mailbox;
use leasehold_core::{Error, ErrorKind, Result, background};
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::error::{self, Failure};
use crate::heard::Heard;
use crate::wire::{Answer, Request};
use task::Task;

pub(crate) use connection::dial;

mod connection;
mod task;

/// A session. It ends when this is dropped, at the latest by its timeout.
pub(crate) struct Link {
    orders: mpsc::UnboundedSender<Order>,
    facts: Arc<Mutex<Facts>>,
}

/// What is known of the session.
#[derive(Debug, Default)]
struct Facts {
    id: i64,
    /// What the server that we are or were connected to grants.
    timeout: Duration,
    /// When what made the newest connection was sent.
    since: Option<Moment>,
    /// What the leader has heard of it.
    heard: Heard,
    /// Counts the connections.
    generation: u64,
    over: bool,
}

enum Order {
    Call {
        request: Request,
        /// Whom to tell of the path's end.
        watch: Option<(String, Weak<Mailbox>)>,
        reply: Reply,
    },
    /// Another server than that of this connection.
    TurnAway(u64),
    Close(oneshot::Sender<()>),
}

fn lock(facts: &Mutex<Facts>) -> MutexGuard<'_, Facts> {
    facts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Begins a session of `timeout`, as near as the ensemble allows. `disturbed` is called when a connection breaks
    /// and when the session is over.
    ///
    /// # Errors
    /// When no server begins one.
    pub(crate) async fn open(
        config: Arc<Config>,
        timeout: Duration,
        disturbed: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let (orders, received) = mpsc::unbounded_channel();
        let facts = Arc::new(Mutex::new(Facts::default()));
        let mut task = Task::new(
            config,
            timeout,
            received,
            facts.clone(),
            Box::new(disturbed),
        );
        let stream = task.reach_any().await?;
        background::spawn_here(task.run(stream));
        Ok(Self { orders, facts })
    }

    /// The session's number.
    pub(crate) fn id(&self) -> i64 {
        lock(&self.facts).id
    }

    /// What the server grants.
    pub(crate) fn timeout(&self) -> Duration {
        lock(&self.facts).timeout
    }

    /// When what made the newest connection was sent.
    pub(crate) fn since(&self) -> Moment {
        lock(&self.facts).since.unwrap_or_else(clock::now)
    }

    /// How long after its send a holder may count on a write that was sent then and is answered; none where nothing can
    /// be said of that.
    pub(crate) fn worth(&self, sent: Moment) -> Option<Duration> {
        let mut facts = lock(&self.facts);
        let timeout = facts.timeout;
        facts.heard.answered(sent, timeout)
    }

    /// Takes a new connection for what comes, where it follows a pause.
    pub(crate) fn resume(&self, now: Moment) {
        let facts = lock(&self.facts);
        if facts.heard.paused(now, facts.timeout) {
            let _ = self.orders.send(Order::TurnAway(facts.generation));
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.facts).over
    }

    /// Sends requests one after the other without waiting in between; their answers.
    pub(crate) async fn call<const N: usize>(
        &self,
        requests: [Request; N],
        patience: Duration,
    ) -> [Result<Answer, Failure>; N] {
        in_array(self.call_each(requests, patience).await)
    }

    /// As [`call`](Self::call), for as many as there are.
    pub(crate) async fn call_each(
        &self,
        requests: impl IntoIterator<Item = Request>,
        patience: Duration,
    ) -> Vec<Result<Answer, Failure>> {
        let sent = requests.into_iter().map(|request| self.send(request, None));
        self.gather(sent.collect(), patience).await
    }

    /// Sees that there is a node at `path`; when that ends, `mailbox` is told.
    pub(crate) async fn call_watching(
        &self,
        path: &str,
        mailbox: &Arc<Mailbox>,
        patience: Duration,
    ) -> Result<(), Failure> {
        let watch = Some((path.to_owned(), Arc::downgrade(mailbox)));
        // Where there is none, this leaves no watch behind.
        let sent = vec![self.send(Request::data(path, true), watch)];
        let [seen] = in_array(self.gather(sent, patience).await);
        seen.map(|_| ())
    }

    /// Has `mailbox` told when the node at `path` ends, from about now on; waits for no answer.
    pub(crate) fn watch(&self, path: &str, mailbox: &Arc<Mailbox>) {
        let watch = Some((path.to_owned(), Arc::downgrade(mailbox)));
        drop(self.send(Request::exists(path, true), watch));
    }

    /// Ends the session; without an answer in time it ends by its timeout.
    pub(crate) async fn close(&self, patience: Duration) {
        let (done, is_done) = oneshot::channel();
        if self.orders.send(Order::Close(done)).is_ok() {
            let _ = clock::timeout(patience, is_done).await;
        }
    }

    fn send(&self, request: Request, watch: Option<(String, Weak<Mailbox>)>) -> Sent {
        let (reply, answer) = oneshot::channel();
        // Where the task is gone the reply is dropped.
        let _ = self.orders.send(Order::Call {
            request,
            watch,
            reply,
        });
        answer
    }

    /// Waits for answers. Without one in time it is another server's turn.
    async fn gather(&self, sent: Vec<Sent>, patience: Duration) -> Vec<Result<Answer, Failure>> {
        let (count, generation) = (sent.len(), lock(&self.facts).generation);
        let mut answers = Vec::with_capacity(count);
        let gathered = async {
            for answer in sent {
                answers.push(answer.await.unwrap_or(Err(Failure::SessionOver)));
            }
        };
        if clock::timeout(patience, gathered).await.is_none() {
            let _ = self.orders.send(Order::TurnAway(generation));
            let late = || Err(error::unanswered(&format!("none within {patience:?}")));
            answers.resize_with(count, late);
        }
        answers
    }
}

/// As many answers as there were requests.
pub(crate) fn in_array<const N: usize>(
    answers: impl IntoIterator<Item = Result<Answer, Failure>>,
) -> [Result<Answer, Failure>; N] {
    let mut answers = answers.into_iter();
    std::array::from_fn(|_| answers.next().unwrap_or(Err(Failure::SessionOver)))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The session's password stays out.
        write!(f, "Link({:#x})", self.id())
    }
}

type Reply = oneshot::Sender<Result<Answer, Failure>>;
type Sent = oneshot::Receiver<Result<Answer, Failure>>;

/// The error of servers that can't be reached.
pub(crate) fn unreachable(text: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "no server can be reached; is it running, are host and port right, and has it a leader?",
    )
    .because(text.to_owned())
}
