//! Faults put into what ships, to see them found.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold_core::Owner;
use leasehold_core::clock::{self, Moment};
use leasehold_core::session::Pulse;

use crate::error::Failure;
use crate::keys::{self, Layout};
use crate::link::Link;
use crate::session::{Made, Seat, Session};
use crate::wire::{Answer, Request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A beat without an answer counts.
    CountsUnanswered,
    /// A beat is a read, which a member answers that is cut off from the others.
    BeatsByReading,
    /// A beat is worth the same after a pause.
    IgnoresPauses,
    /// A holder goes on where its session has ended.
    GoesOnWithoutSession,
    /// A node is taken for the attempt's own by its name, whoever's session has it.
    AdoptsByName,
    /// Places are ordered by the text of their numbers.
    OrdersByText,
    /// Who is told that the place before his is gone takes the lock without looking.
    TakesUnseen,
    /// A look at the queue without the leader.
    LooksWithoutSync,
    /// What tries without an answer made is looked for without the leader.
    EndsWithoutSync,
    /// What tries without an answer made stays.
    LeavesOrphans,
    /// A waiter keeps its place where that went with the lock's node.
    KeepsWhatIsGone,
    /// Time is read from the monotonic clock alone.
    MonotonicOnly,
}

thread_local! {
    static PUT_IN: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// What is put into all that runs on this thread from now on.
pub(super) fn put_in(fault: Option<Fault>) {
    PUT_IN.set(fault);
}

pub(crate) fn is_put_in(fault: Fault) -> bool {
    PUT_IN.get() == Some(fault)
}

/// What a beat sends.
pub(crate) fn beat(beat: [Request; 2], root: &str) -> [Request; 2] {
    let [write, own] = beat;
    if is_put_in(Fault::BeatsByReading) {
        return [Request::exists(root, false), own];
    }
    [write, own]
}

/// What a beat is worth that is worth nothing.
pub(crate) fn pulse(
    written: &Result<Answer, Failure>,
    since: Moment,
    session: &Session,
) -> Option<Pulse> {
    let counts = match written {
        Err(Failure::Unanswered(_)) => is_put_in(Fault::CountsUnanswered),
        Err(Failure::SessionOver) => is_put_in(Fault::GoesOnWithoutSession),
        _ => false,
    };
    let made = |place: &crate::session::Place| Some(place.made.as_ref()?.path.clone().into_bytes());
    counts.then(|| Pulse {
        since,
        ttl: session.asked(),
        keys: Arc::new(session.each(|_, place| made(place)).into_iter().collect()),
    })
}

/// The place that a waiter who was told takes for the first.
pub(crate) fn unseen(seat: &Seat) -> Option<Made> {
    let mut context = Context::from_waker(Waker::noop());
    let told = seat.mailbox.poll_changed(&mut context) == Poll::Ready(());
    let made = seat.with(|place| place.made.clone());
    made.filter(|_| told && is_put_in(Fault::TakesUnseen))
}

/// A node that is named as the attempt's.
pub(crate) async fn by_name(
    made: Option<Made>,
    seat: &Seat,
    link: &Link,
    lock: &str,
    owner: Owner,
) -> Option<Made> {
    if made.is_some() || !is_put_in(Fault::AdoptsByName) {
        return made;
    }
    let patience = std::time::Duration::from_secs(1);
    let [children] = link.call([Request::children(lock)], patience).await;
    let named = keys::place(Layout::Curator, owner);
    let child = children.ok()?.texts()?.into_iter();
    let child = child.into_iter().find(|child| child.starts_with(&named))?;
    let path = format!("{lock}/{child}");
    let [found] = link.call([Request::exists(&path, false)], patience).await;
    let stat = found.ok()?.stat()?;
    let made = Made { path, stat };
    let now = clock::now();
    seat.with(|place| {
        place.send(leasehold_core::session::end(now, seat.session.asked()));
        place.answered();
        place.made = Some(made.clone());
    });
    Some(made)
}

/// What asks for something newest, perhaps without the leader.
pub(crate) fn look(look: [Request; 2], fault: Fault) -> [Request; 2] {
    let [sync, look] = look;
    if is_put_in(fault) {
        return [Request::exists("/", false), look];
    }
    [sync, look]
}

/// The places of a queue in their order.
pub(crate) fn order(places: &mut [(i32, String)]) {
    if is_put_in(Fault::OrdersByText) {
        places.sort_by_key(|(_, child)| child[child.len() - 10..].to_owned());
    }
}
