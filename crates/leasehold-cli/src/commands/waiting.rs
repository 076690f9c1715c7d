//! Waiting for a busy lock: how long, and what is said meanwhile.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use leasehold::{Guard, Holder, Identity, Inspection, Lock};
use leasehold_core::clock::{self, Moment};

use super::Context;
use crate::args::{Log, Wait};
use crate::duration;
use crate::exit::Failure;
use crate::printer::{Event, Level};
use crate::show;
use crate::store::Store;

/// How often the line on a terminal is drawn anew.
const DRAW: Duration = Duration::from_secs(1);
/// How often an outage is told of.
const TELL: Duration = Duration::from_secs(60);
/// When to look again for a lock whose holder may have been killed just now.
const ENDING: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(60),
    Duration::from_millis(100),
];
/// The pause after an outage that the library gave up on.
const AGAIN: Duration = Duration::from_millis(500);

/// Takes the lock; `None` when it is busy and the wait is over.
///
/// The first try has to be answered within the time for a connection, also with a wait: a job must not
/// wait for ever for a store that was never there. After that, an outage is waited out. A store of several servers is
/// there when one of them answers.
pub(super) async fn acquire(
    lock: &Lock,
    name: &str,
    wait: Option<Wait>,
    store: &Store,
    context: &Context,
) -> Result<Option<Guard>, Failure> {
    let begun = clock::now();
    let waits = wait.is_some_and(|wait| wait != Wait::AtMost(Duration::ZERO));
    let try_once = async || match lock.try_acquire().await {
        // It did answer, so the wait says for how long to try.
        Err(error) if waits && error.is_retryable() && error.is_answered() => Ok(None),
        tried => tried,
    };
    match context.first(store, "acquire", Some(name), try_once).await {
        Ok(None) => {}
        first => return first,
    }
    let Some(wait) = wait else {
        return Ok(look_again(lock, store).await);
    };
    if !waits {
        return Ok(None);
    }
    let watch = Watch {
        begun,
        name,
        forever: wait == Wait::Forever,
        store,
        context,
    };
    let outcome = tokio::select! {
        outcome = answer(lock, wait, begun) => outcome,
        never = watch.tell() => match never {},
    };
    match outcome {
        // The time was over before an answer to the last question came: busy, unless the store is really out. It is
        // where all that is held is a grant of ours that came too late.
        Err(failure) if failure.is_outage() => match context.last_look(store, name).await {
            Ok(found) if found.holder.as_ref().is_some_and(is_anothers) => Ok(None),
            _ => Err(failure),
        },
        outcome => outcome,
    }
}

fn is_anothers(holder: &Holder) -> bool {
    let this = Identity::of_this_process();
    let ours = |identity: &Identity| identity.host == this.host && identity.pid == this.pid;
    !holder.identity.as_ref().is_some_and(ours)
}

/// A killed holder's lock is free once its job has ended, which takes a moment: who comes right behind it is not to
/// be turned away.
async fn look_again(lock: &Lock, store: &Store) -> Option<Guard> {
    if !store.client.info().capabilities.frees_dead_at_once {
        return None;
    }
    for pause in ENDING {
        tokio::time::sleep(pause).await;
        // It was busy; that the store doesn't answer now makes it no freer.
        match lock.try_acquire().await {
            Ok(None) => {}
            Ok(Some(guard)) => return Some(guard),
            Err(_) => return None,
        }
    }
    None
}

async fn answer(lock: &Lock, wait: Wait, begun: Moment) -> Result<Option<Guard>, Failure> {
    loop {
        let outcome = match wait {
            Wait::Forever => lock.acquire().await.map(Some),
            Wait::AtMost(most) => {
                lock.acquire_within(most.saturating_sub(waited(begun)))
                    .await
            }
        };
        let over = matches!(wait, Wait::AtMost(most) if waited(begun) >= most);
        match outcome {
            Err(error) if error.is_retryable() && !over => tokio::time::sleep(AGAIN).await,
            outcome => return Ok(outcome?),
        }
    }
}

pub(super) fn waited(begun: Moment) -> Duration {
    clock::now().since(begun).steady
}

/// What is said while waiting: on a terminal a line that tells of whom and how long; elsewhere nothing, but
/// of an outage during a wait without end.
struct Watch<'a> {
    begun: Moment,
    name: &'a str,
    forever: bool,
    store: &'a Store,
    context: &'a Context,
}

impl Watch<'_> {
    async fn tell(self) -> Infallible {
        let terminal = self.context.printer.log == Log::Human && io::stderr().is_terminal();
        let pause = match (terminal, self.forever) {
            (true, _) => DRAW,
            (false, true) => TELL,
            (false, false) => std::future::pending().await,
        };
        let line = StatusLine { terminal };
        let mut outage = Outage::default();
        loop {
            if !terminal {
                tokio::time::sleep(pause).await;
            }
            let inspect = self.store.client.inspect(self.name);
            let found = self
                .context
                .once(self.store, "inspect", self.name, inspect)
                .await;
            let waited = waited(self.begun);
            if self.forever && outage.is_due(waited, found.is_err()) {
                line.clear();
                self.say(waited, found.as_ref().err());
            }
            line.draw(&format!(
                "leasehold: waiting {} for \"{}\": {}",
                duration::show(Duration::from_secs(waited.as_secs())),
                self.name,
                state(&found)
            ));
            if terminal {
                tokio::time::sleep(pause).await;
            }
        }
    }

    fn say(&self, waited: Duration, failure: Option<&Failure>) {
        let why = failure.map_or("", |failure| failure.message.as_str());
        let text = format!(
            "still waiting for \"{}\" after {}, but the store can't be asked: {why}",
            self.name,
            duration::show(waited),
        );
        let store = &self.store.shown;
        self.context.printer.event(&Event::new(
            Level::Warn,
            "outage",
            self.name,
            store,
            None,
            &text,
        ));
    }
}

fn state(found: &Result<Inspection, Failure>) -> String {
    match found {
        Ok(found) => match &found.holder {
            Some(holder) => show::holder(holder),
            None => "about to change hands".into(),
        },
        Err(failure) => format!("the store can't be asked: {}", failure.message),
    }
}

/// Since when an outage lasts, to tell of it each minute.
#[derive(Default)]
struct Outage {
    told: Option<Duration>,
}

impl Outage {
    fn is_due(&mut self, waited: Duration, out: bool) -> bool {
        if !out {
            self.told = None;
            return false;
        }
        let due = self
            .told
            .is_none_or(|told| waited.saturating_sub(told) >= TELL);
        if due {
            self.told = Some(waited);
        }
        due
    }
}

/// The line on a terminal; gone when it is dropped.
struct StatusLine {
    terminal: bool,
}

impl StatusLine {
    fn draw(&self, text: &str) {
        if self.terminal {
            // A line that wraps can't be taken back.
            let columns =
                rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| size.ws_col);
            let columns = usize::from(if columns == 0 { 80 } else { columns });
            let mut line = String::from("\r\x1b[K");
            for c in show::clean(text).chars().take(columns.saturating_sub(1)) {
                // Writing to a String can't fail.
                let _ = write!(line, "{c}");
            }
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    fn clear(&self) {
        if self.terminal {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests;
