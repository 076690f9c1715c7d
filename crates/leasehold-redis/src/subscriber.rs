//! The process's subscription: where it hears what it is told.
//!
//! It runs on the keeper's thread, so that a caller that blocks its runtime still hears. A message that is
//! missed costs a wait, never safety: every waiter tries again by itself before its time is over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::{Error, ErrorKind, Owner, Result, background};
use redis::aio::PubSub;
use tokio::sync::{oneshot, watch};

use crate::config::CONNECT;
use crate::error;
use crate::link::Server;
use crate::mailbox::{Boxes, Registration, lock};
use crate::shards::Shards;

/// The pause before subscribing again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where this process hears what it is told.
#[derive(Debug)]
pub(crate) enum Subscriber {
    /// At the one server.
    One(Subscription<Boxes>),
    /// At the masters of a cluster.
    Many(Shards),
}

impl Subscriber {
    /// A box for messages to this owner; gone when the returned registration is dropped.
    pub(crate) fn register(&self, owner: Owner) -> Registration {
        match self {
            Self::One(subscription) => subscription.shared.readers.register(owner),
            Self::Many(shards) => shards.register(owner),
        }
    }

    /// Waits until messages about this lock are heard, for a waiter that nobody can tell would be passed over.
    /// Answers the channel they come on.
    pub(crate) async fn ready(&self, lock: &str) -> Result<Arc<str>> {
        match self {
            Self::One(subscription) => {
                subscription.ready().await?;
                Ok(subscription.shared.channel.clone())
            }
            Self::Many(shards) => Box::pin(shards.ready(lock)).await,
        }
    }
}

/// The subscription; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Subscription<R> {
    shared: Arc<Shared<R>>,
    /// Kept while the subscription runs; dropping it ends it.
    running: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Debug)]
struct Shared<R> {
    server: Server,
    channel: Arc<str>,
    readers: R,
    state: watch::Sender<State>,
}

#[derive(Clone, Debug)]
enum State {
    Connecting,
    On,
    /// The newest try failed; another is under way.
    Failed(Arc<Error>),
}

/// Who is told what a subscription hears.
pub(crate) trait Readers: Send + Sync + 'static {
    /// A message came.
    fn deliver(&self, payload: &str);

    /// Messages may have been missed.
    fn wake_everyone(&self);
}

impl Readers for Boxes {
    fn deliver(&self, payload: &str) {
        self.deliver(payload);
    }

    fn wake_everyone(&self) {
        self.wake_everyone();
    }
}

impl<R: Readers> Subscription<R> {
    pub(crate) fn new(server: Server, channel: Arc<str>, readers: R) -> Self {
        Self {
            shared: Arc::new(Shared {
                server,
                channel,
                readers,
                state: watch::Sender::new(State::Connecting),
            }),
            running: Mutex::new(None),
        }
    }

    /// Waits until the subscription stands.
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
            Ok(State::Failed(error)) => Err(once_more(&error)),
            _ => Ok(()),
        }
    }
}

/// The same error for one more who asks.
fn once_more(error: &Error) -> Error {
    let again = Error::new(error.kind(), error.message());
    match std::error::Error::source(error) {
        Some(cause) => again.because(cause.to_string()),
        None => again,
    }
}

/// Keeps the subscription up until its owner is gone.
async fn run<R: Readers>(shared: Arc<Shared<R>>, mut stopped: oneshot::Receiver<()>) {
    let mut pause = PAUSE_MIN;
    loop {
        let ended = tokio::select! {
            _ = &mut stopped => return,
            ended = shared.listen() => ended,
        };
        tracing::debug!(error = %ended, "messages from the server are interrupted");
        let was_on = matches!(*shared.state.borrow(), State::On);
        let state = if was_on {
            pause = PAUSE_MIN;
            State::Connecting
        } else {
            State::Failed(Arc::new(ended))
        };
        shared.state.send_replace(state);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

impl<R: Readers> Shared<R> {
    /// One connection's life; says what ended it.
    async fn listen(&self) -> Error {
        // The driver would wait for ever for a server that takes the connection and says nothing.
        let (messages, era) = match tokio::time::timeout(CONNECT, self.subscribed()).await {
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
        self.readers.wake_everyone();
        let mut messages = messages.into_on_message();
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                () = self.server.replaced(era) => {
                    return Error::new(ErrorKind::Unavailable, "another server is the master now");
                }
            };
            let Some(message) = message else { break };
            if let Ok(payload) = message.get_payload::<String>() {
                self.readers.deliver(&payload);
            }
        }
        Error::new(ErrorKind::Unavailable, "the connection for messages broke")
    }

    async fn subscribed(&self) -> Result<(PubSub, u64)> {
        let (mut messages, era) = self.server.messages().await?;
        messages
            .subscribe(&*self.channel)
            .await
            .map_err(error::connecting)?;
        Ok((messages, era))
    }
}
