//! What waiters and holders are told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold_core::Owner;

use crate::reply::Message;

/// What one waiter or holder was told.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Mail>);

#[derive(Debug, Default)]
struct Mail {
    handed: Option<Message>,
    changed: bool,
    waker: Option<Waker>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

/// Everybody who is told something, by owner.
#[derive(Debug, Default)]
pub(crate) struct Boxes(Arc<Mutex<HashMap<Owner, Arc<Mailbox>>>>);

impl Boxes {
    /// A box for messages to this owner; gone when the returned registration is dropped.
    pub(crate) fn register(&self, owner: Owner) -> Registration {
        let mailbox = Arc::new(Mailbox::default());
        lock(&self.0).insert(owner, mailbox.clone());
        Registration {
            boxes: self.0.clone(),
            owner,
            mailbox,
        }
    }

    /// What was published while nobody listened is lost: everyone looks for himself.
    pub(crate) fn wake_everyone(&self) {
        let everyone: Vec<Arc<Mailbox>> = lock(&self.0).values().cloned().collect();
        for mailbox in everyone {
            mailbox.put(None);
        }
    }

    /// Hands on what was published; what isn't ours is dropped.
    pub(crate) fn deliver(&self, payload: &str) {
        let Some(message) = Message::parse(payload) else {
            return;
        };
        let mailbox = lock(&self.0).get(&message.owner()).cloned();
        if let Some(mailbox) = mailbox {
            mailbox.put(Some(message));
        }
    }
}

/// An entry among those who are told; ends when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    boxes: Arc<Mutex<HashMap<Owner, Arc<Mailbox>>>>,
    owner: Owner,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.boxes).remove(&self.owner);
    }
}
