//! What `run` and `acquire` share: a lock is asked for, and signals end the waiting.

use std::time::Duration;

use leasehold::{Guard, Inspection, Lock};
use leasehold_core::clock;

use super::Context;
use super::waiting::{acquire, waited};
use crate::args::{Claim, IfBusy, Wait};
use crate::duration;
use crate::exit::{BUSY, Failure, SIGNAL};
use crate::printer::{Event, Level};
use crate::show::{self, HolderJson};
use crate::store::Store;
use crate::supervise::Signals;

/// How long releases that got no answer may go on in the background; after that their holds end by TTL.
const CLOSE: Duration = Duration::from_secs(2);

/// Connects, does the work, and closes the client in good order whatever came of it.
pub(super) async fn on_store(
    context: &Context,
    work: impl AsyncFnOnce(&Store, &mut Signals) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    // Before the lock is asked for: from here on no signal ends this process without the lock being given back.
    let mut signals = Signals::install()
        .map_err(|error| Failure::internal(format!("signals can't be received: {error}")))?;
    let store = tokio::select! {
        store = context.connect() => store?,
        signal = signals.next() => return Ok(by_signal(signal)),
    };
    let ended = work(&store, &mut signals).await;
    tokio::select! {
        // Without an answer the holds end by TTL; there is nothing left to do for them here.
        _ = tokio::time::timeout(CLOSE, store.client.close()) => {}
        signal = signals.next() => return Ok(by_signal(signal)),
    }
    ended
}

pub(super) fn by_signal(signal: i32) -> u8 {
    SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// A lock that is asked for on a store.
pub(super) struct Asking<'a> {
    pub(super) claim: &'a Claim,
    pub(super) store: &'a Store,
    pub(super) context: &'a Context,
}

/// What asking came to.
pub(super) enum Outcome {
    Granted(Guard),
    /// The exit code; what there is to say has been said.
    Over(u8),
}

impl Asking<'_> {
    pub(super) fn lock(&self) -> Result<Lock, Failure> {
        let lock = self.store.client.lock(&self.claim.name)?;
        let lock = lock.ttl(self.context.settings.ttl.value);
        Ok(match &self.claim.note {
            Some(note) => lock.note(note),
            None => lock,
        })
    }

    /// Takes the lock, waiting for as long as was asked for. `unmet` ends the line about a busy one.
    pub(super) async fn take(
        &self,
        lock: &Lock,
        signals: &mut Signals,
        unmet: &str,
    ) -> Result<Outcome, Failure> {
        let Claim { name, wait, .. } = self.claim;
        let begun = clock::now();
        let guard = tokio::select! {
            guard = acquire(lock, name, *wait, self.store, self.context) => guard?,
            // Dropping the attempt leaves the queue; closing the client waits for that.
            signal = signals.next() => return Ok(Outcome::Over(by_signal(signal))),
        };
        Ok(match guard {
            Some(guard) => Outcome::Granted(guard),
            None => Outcome::Over(self.busy(waited(begun), unmet).await?),
        })
    }

    /// Says who is in the way; answers the exit code. Who has waited, and is told nothing now, is told of the outage.
    async fn busy(&self, waited: Duration, unmet: &str) -> Result<u8, Failure> {
        let name = &self.claim.name;
        let waits = self
            .claim
            .wait
            .is_some_and(|wait| wait != Wait::AtMost(Duration::ZERO));
        let found = match self.context.last_look(self.store, name).await {
            Err(failure) if waits && failure.is_outage() => return Err(failure),
            found => found.ok(),
        };
        let skip = self.claim.if_busy == IfBusy::Skip;
        let mut text = format!("\"{name}\" is busy: {}", in_the_way(found.as_ref()));
        if waits {
            text = format!("{text}; waited {}", duration::show(waited));
        }
        text.push_str(unmet);
        let level = if skip { Level::Info } else { Level::Error };
        let holder = found.as_ref().and_then(|found| found.holder.as_ref());
        let event = self.event(level, "busy", None, &text);
        self.context.printer.event(&Event {
            holder: holder.map(HolderJson::from),
            ..event
        });
        Ok(match self.claim.if_busy {
            IfBusy::Skip => 0,
            IfBusy::Fail => self.claim.busy_code.unwrap_or(BUSY),
        })
    }

    /// Tells those who asked for more that the lock is taken.
    pub(super) fn acquired(&self, token: &str) {
        let text = format!(
            "acquired \"{}\" with token {token} for {}",
            self.claim.name,
            duration::exact(self.context.settings.ttl.value),
        );
        let event = self.event(Level::Info, "acquired", token, &text);
        self.context.printer.detail(&event);
    }

    pub(super) fn say(&self, level: Level, event: &'static str, token: &str, text: &str) {
        self.context
            .printer
            .event(&self.event(level, event, token, text));
    }

    pub(super) fn event<'t>(
        &'t self,
        level: Level,
        event: &'static str,
        token: impl Into<Option<&'t str>>,
        text: &str,
    ) -> Event<'t> {
        let (name, store) = (&self.claim.name, &self.store.shown);
        Event::new(level, event, name, store, token.into(), text)
    }
}

fn in_the_way(found: Option<&Inspection>) -> String {
    match found {
        Some(Inspection {
            holder: Some(holder),
            ..
        }) => show::holder(holder),
        Some(Inspection { waiters, .. }) if !waiters.is_empty() => {
            format!("not held just now, but {} before us", waiters.len())
        }
        Some(_) => "its holder has just let go of it".into(),
        None => "its holder can't be asked for".into(),
    }
}
