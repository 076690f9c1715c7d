//! Where a contender is told that something happened.

use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A flag with a waker: many may put, the contender alone looks.
#[derive(Debug, Default)]
pub struct Mailbox(Mutex<Mail>);

#[derive(Debug, Default)]
struct Mail {
    changed: bool,
    waker: Option<Waker>,
}

impl Mailbox {
    /// Something happened.
    pub fn put(&self) {
        let mut mail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mail.changed = true;
        if let Some(waker) = mail.waker.take() {
            waker.wake();
        }
    }

    /// A request goes out: what was told before it is answered by it. Whether anything was.
    pub fn clear(&self) -> bool {
        let mut mail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut mail.changed)
    }

    /// Ready once something was put; its waker is told of the next.
    pub fn poll_changed(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut mail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if mail.changed {
            return Poll::Ready(());
        }
        mail.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
