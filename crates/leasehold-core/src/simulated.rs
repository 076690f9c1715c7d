//! A process of a simulated world, instead of the one that this code runs in. Only for tests.
//!
//! What ships runs in it as it is: the wait loop, the keeper, sessions and stores. Its clocks, its chance and its tasks
//! are the world's, which says before each poll whose turn it is. Nothing here is thread-safe: a world has one thread.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::keeper::{self, Inbox};

/// A task of a process.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What the world is to a process.
pub trait Host {
    /// Its clocks.
    fn now(&self) -> Moment;

    /// Random bits.
    fn bits(&self) -> u64;

    /// Wakes once the boot clock, or the monotonic one, shows this or more; not earlier, perhaps later.
    fn wake_at(&self, due: Due, waker: Waker);

    /// Runs a task until it ends or the process does.
    fn spawn(&self, task: Task);
}

/// When a timer is due, by one of the machine's clocks.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// The clock that runs on in suspend.
    Boot(u64),
    /// The clock that stands still in suspend.
    Monotonic(u64),
}

impl Due {
    /// How long it still is, by the clocks as they are read.
    #[must_use]
    pub fn rest(self, read: Moment) -> u64 {
        match self {
            Self::Boot(at) => at.saturating_sub(read.boot),
            Self::Monotonic(at) => at.saturating_sub(read.monotonic),
        }
    }
}

/// A process: its host, and its keeper once it needs one.
pub struct Process {
    host: Box<dyn Host>,
    inbox: RefCell<Option<Arc<Inbox>>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Process>>> = const { RefCell::new(None) };
    /// Whether there is one, for those who ask all the time.
    static IS_SIMULATED: Cell<bool> = const { Cell::new(false) };
}

impl Process {
    /// A process that runs on this host.
    #[must_use]
    pub fn new(host: impl Host + 'static) -> Rc<Self> {
        Rc::new(Self {
            host: Box::new(host),
            inbox: RefCell::default(),
        })
    }

    /// Does what is code of this process.
    pub fn run<T>(self: &Rc<Self>, code: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(Some(self.clone()));
        IS_SIMULATED.set(true);
        let done = code();
        IS_SIMULATED.set(before.is_some());
        CURRENT.set(before);
        done
    }

    pub(crate) fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Its keeper's.
    pub(crate) fn inbox(&self) -> Arc<Inbox> {
        let mut inbox = self.inbox.borrow_mut();
        let inbox = inbox.get_or_insert_with(|| {
            let inbox = Arc::new(Inbox::default());
            let until = async |at| wait(Due::Boot(at)).await;
            self.host.spawn(Box::pin(keeper::run(inbox.clone(), until)));
            inbox
        });
        inbox.clone()
    }
}

/// The process whose code this is, if it is one of a simulated world.
pub(crate) fn current() -> Option<Rc<Process>> {
    if !IS_SIMULATED.get() {
        return None;
    }
    CURRENT.with_borrow(Option::clone)
}

/// Waits until a clock of this process's host shows that it is due.
async fn wait(due: Due) {
    let mut asked = false;
    poll_fn(|context| {
        let Some(process) = current() else {
            return Poll::Pending;
        };
        if due.rest(process.host().now()) == 0 {
            return Poll::Ready(());
        }
        // One waker will do: who polls this is one task.
        if !std::mem::replace(&mut asked, true) {
            process.host().wake_at(due, context.waker().clone());
        }
        Poll::Pending
    })
    .await;
}

pub(crate) async fn sleep(pause: Duration) {
    let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    wait(Due::Monotonic(clock::now().monotonic.saturating_add(nanos))).await;
}

pub(crate) async fn timeout<T>(most: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut over = pin!(sleep(most));
    poll_fn(|context| {
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        over.as_mut().poll(context).map(|()| None)
    })
    .await
}
