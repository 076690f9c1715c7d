//! Redlock: one lock on several independent Redis servers, the protocol without input or output.
//!
//! ```text
//!                     Attempt ── Take ──────────► nodes     each gives its part of the lock, or a place in its queue
//!  driver ── events ─►   │    ◄─ counters ──────
//!         ◄─ effects ─   │   ── Write token ─────► nodes     one more than any counter of a majority
//!                        │    ◄─ written ───────
//!                        └──► Granted, once a majority has written it and enough of the lease is left
//!         Extension ───────── renew ────────────► nodes     a majority extends; no answer doesn't
//!         Leaving ─────────── Leave ────────────► nodes     until each has answered; each tells its first waiter
//!         members::judge ──── reports ◄────────── nodes     which of them count
//! ```
//!
//! What holds, and why:
//!
//! - **One holder.** It takes a majority of *all* nodes to hold, and two majorities share a node. The lease counts from
//!   the oldest send among the nodes it stands on, and the clock is read again after the last answer.
//! - **Tokens are unique and rise**, by no clock ([`round`]). Whoever begins after a grant asks a majority, meets a
//!   node that wrote its token, and goes higher. And two that chose the same token would need one node to write it
//!   twice, which writes only what is higher than all before. Each order of events is tried out in `model`.
//! - **Nothing is left over.** A node keeps the number of the last request of each owner and ignores older ones, so an
//!   attempt keeps its owner over all its tries. A release leaves a tombstone where one may still land.
//! - **No split votes in the long run** ([`queue`]). Waiters take nothing out of turn, and a release tells one of
//!   them. Where several newcomers each got a part, all see the same, and all but one let go.
//! - **Who lost its memory has no vote** ([`members`]).
//!
//! The driver owes it this: it reads the clock after it has an answer, never before; it sends a request once, and
//! anew only with a new number; it asks nodes to take only while they count, and takes an answer only from the
//! connection, so the run of the server, that was judged; it raises the longest TTL on a majority before it uses it;
//! it writes the end of what it began ([`hold::Leaving`]) also when nobody waits for it any more.

mod attempt;
mod backend;
mod census;
mod config;
mod contender;
mod dealings;
mod departure;
mod exchange;
mod findings;
mod hold;
mod inbox;
mod look;
mod members;
#[cfg(test)]
mod model;
mod nodes;
mod panel;
mod queue;
mod renewal;
mod round;
#[cfg(test)]
mod schedules;
pub(crate) mod script;
#[cfg(test)]
mod script_tests;
mod seat;
#[cfg(test)]
mod simulation;
mod site;
mod telling;

pub(crate) use backend::Redlock;
pub(crate) use config::Config;
pub(crate) use seat::Seat;
