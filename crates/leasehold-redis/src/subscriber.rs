//! The process's one subscription: who is told what, and that the connection was away.
//!
//! It runs on the keeper's thread, so that a caller that blocks its runtime still hears. A message that is
//! missed costs a wait, never safety: every waiter tries again by itself before its time is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::{Error, ErrorKind, Result, background};
use redis::Client;
use redis::aio::PubSub;
use tokio::sync::{oneshot, watch};

use crate::config::CONNECT;
use crate::error;
use crate::reply::Message;

/// The pause before subscribing again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The subscription; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Subscriber {
    shared: Arc<Shared>,
    /// Kept while the subscription runs; dropping it ends it.
    running: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    channel: String,
    boxes: Arc<Mutex<HashMap<String, Arc<Mailbox>>>>,
    state: watch::Sender<State>,
}

#[derive(Clone, Debug)]
enum State {
    Connecting,
    On,
    /// The newest try failed; another is under way.
    Failed(ErrorKind, String),
}

/// What one waiter or holder was told.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Mail>);

#[derive(Debug, Default)]
struct Mail {
    handed: Option<Message>,
    changed: bool,
    waker: Option<Waker>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// A hand-over that has arrived.
    pub(crate) fn take_handed(&self) -> Option<Message> {
        let mut mail = lock(&self.0);
        let handed = mail.handed.take();
        // With it the waiter knows all there was to know.
        mail.changed &= handed.is_none();
        handed
    }

    /// A request goes out: what was told before it is answered by it. Also a hand-over: a hold that came by a
    /// try's answer would be told of it for ever.
    pub(crate) fn clear(&self) {
        let mut mail = lock(&self.0);
        mail.changed = false;
        mail.handed = None;
    }

    pub(crate) fn poll_changed(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut mail = lock(&self.0);
        if mail.changed || mail.handed.is_some() {
            return Poll::Ready(());
        }
        mail.waker = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn put(&self, message: Option<Message>) {
        let mut mail = lock(&self.0);
        mail.changed = true;
        if let Some(message @ Message::Granted { .. }) = message {
            mail.handed = Some(message);
        }
        if let Some(waker) = mail.waker.take() {
            waker.wake();
        }
    }
}

impl Subscriber {
    pub(crate) fn new(client: Client, channel: String) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                channel,
                boxes: Arc::default(),
                state: watch::Sender::new(State::Connecting),
            }),
            running: Mutex::new(None),
        }
    }

    pub(crate) fn channel(&self) -> &str {
        &self.shared.channel
    }

    /// A box for messages to this owner; gone when the returned registration is dropped.
    pub(crate) fn register(&self, owner: String) -> Registration {
        let mailbox = Arc::new(Mailbox::default());
        lock(&self.shared.boxes).insert(owner.clone(), mailbox.clone());
        Registration {
            boxes: self.shared.boxes.clone(),
            owner,
            mailbox,
        }
    }

    /// Waits until the subscription stands: a waiter that nobody can tell would be passed over.
    pub(crate) async fn ready(&self) -> Result<()> {
        let mut state = self.shared.state.subscribe();
        {
            let mut running = lock(&self.running);
            if running.is_none() {
                let (sender, stopped) = oneshot::channel();
                background::spawn(run(self.shared.clone(), stopped))?;
                *running = Some(sender);
            }
        }
        let settled = state
            .wait_for(|state| !matches!(state, State::Connecting))
            .await
            .map(|state| state.clone());
        match settled {
            Ok(State::Failed(kind, text)) => Err(Error::new(kind, text)),
            _ => Ok(()),
        }
    }
}

/// Keeps the subscription up until its owner is gone.
async fn run(shared: Arc<Shared>, mut stopped: oneshot::Receiver<()>) {
    let mut pause = PAUSE_MIN;
    loop {
        let ended = tokio::select! {
            _ = &mut stopped => return,
            ended = shared.listen() => ended,
        };
        let was_on = matches!(*shared.state.borrow(), State::On);
        let state = if was_on {
            pause = PAUSE_MIN;
            State::Connecting
        } else {
            State::Failed(ended.kind(), ended.message().to_owned())
        };
        shared.state.send_replace(state);
        tracing::debug!(error = %ended, "messages from the server are interrupted");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

impl Shared {
    /// One connection's life; says what ended it.
    async fn listen(&self) -> Error {
        // The driver would wait for ever for a server that takes the connection and says nothing.
        let messages = match tokio::time::timeout(CONNECT, self.subscribed()).await {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => return error,
            Err(_) => {
                return Error::new(
                    ErrorKind::Unavailable,
                    format!("the server didn't take the subscription within {CONNECT:?}"),
                );
            }
        };
        self.state.send_replace(State::On);
        // What was published while nobody listened is lost: everyone looks for himself.
        let everyone: Vec<Arc<Mailbox>> = lock(&self.boxes).values().cloned().collect();
        for mailbox in everyone {
            mailbox.put(None);
        }
        let mut messages = messages.into_on_message();
        while let Some(message) = messages.next().await {
            let payload = message.get_payload::<String>().ok();
            let Some(message) = payload.and_then(|payload| Message::parse(&payload)) else {
                continue;
            };
            let mailbox = lock(&self.boxes).get(message.owner()).cloned();
            if let Some(mailbox) = mailbox {
                mailbox.put(Some(message));
            }
        }
        Error::new(ErrorKind::Unavailable, "the connection for messages broke")
    }

    async fn subscribed(&self) -> Result<PubSub> {
        let mut messages = self
            .client
            .get_async_pubsub()
            .await
            .map_err(error::connecting)?;
        messages
            .subscribe(&self.channel)
            .await
            .map_err(error::connecting)?;
        Ok(messages)
    }
}

/// An entry among those who are told; ends when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    boxes: Arc<Mutex<HashMap<String, Arc<Mailbox>>>>,
    owner: String,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.boxes).remove(&self.owner);
    }
}
