//! `leasehold acquire`: a lock for a script, which outlives this process.

use leasehold::{Detached, Error, ErrorKind, Guard};
use serde::Serialize;

use super::Context;
use super::claiming::{Asking, Outcome, by_signal, on_store};
use crate::args::Acquire;
use crate::exit::Failure;
use crate::printer::{SCHEMA, json};
use crate::show::millis;
use crate::supervise::Signals;
use crate::usage::in_quotes;

/// What a busy lock that is skipped prints: a script that reads it must not go on without the lock.
const SKIPPED: &str = "exit 0\n";

#[derive(Serialize)]
struct AcquiredJson<'a> {
    schema: u8,
    name: &'a str,
    store: &'a str,
    /// These three are null for a busy lock that is skipped.
    token: Option<String>,
    owner: Option<String>,
    ttl_ms: Option<u64>,
}

pub(crate) async fn acquire(args: Acquire, context: &Context) -> Result<u8, Failure> {
    on_store(context, async |store, signals| {
        let asking = Asking {
            claim: &args.claim,
            store,
            context,
        };
        let info = store.client.info();
        if !info.capabilities.detached {
            return Err(Failure::from(
                Error::new(
                    ErrorKind::Unsupported,
                    "what acquire takes is to outlast this process, and on this store a lock ends with the process that has \
                     it; use leasehold run NAME -- COMMAND",
                )
                .during("acquire")
                .named(&args.claim.name)
                .on(&info.url),
            ));
        }
        // This process is the holder that others see, and it ends now.
        let lock = asking.lock()?.program("leasehold acquire");
        match asking.take(&lock, signals, "").await? {
            Outcome::Granted(guard) => detach(&asking, guard, signals).await,
            Outcome::Over(0) => {
                let printed = print(&asking, None);
                printed.map(|()| 0)
            }
            Outcome::Over(code) => Ok(code),
        }
    })
    .await
}

/// Lets go of the hold and prints what it takes to end it. Where that fails, it is given back.
async fn detach(asking: &Asking<'_>, guard: Guard, signals: &mut Signals) -> Result<u8, Failure> {
    let detached = guard.detach(asking.context.settings.ttl.value).await?;
    let sent = tokio::select! {
        biased;
        signal = signals.next() => Some(signal),
        // Has the signals that came meanwhile looked at first.
        () = tokio::task::yield_now() => None,
    };
    let ended = match sent {
        Some(signal) => Ok(by_signal(signal)),
        None => match print(asking, Some(&detached)) {
            Ok(()) => {
                asking.acquired(&detached.token.to_string());
                return Ok(0);
            }
            Err(failure) => Err(failure),
        },
    };
    let name = &asking.claim.name;
    if let Ok(mut resumed) = asking.store.client.resume(name, detached.owner).await {
        // Without an answer it ends by its TTL.
        let _ = resumed.release().await;
    }
    ended
}

fn print(asking: &Asking<'_>, detached: Option<&Detached>) -> Result<(), Failure> {
    let name = &asking.claim.name;
    let printer = asking.context.printer;
    let text = if printer.json {
        let object = AcquiredJson {
            schema: SCHEMA,
            name,
            store: &asking.store.shown,
            token: detached.map(|detached| detached.token.to_string()),
            owner: detached.map(|detached| detached.owner.to_hex()),
            ttl_ms: detached.map(|_| millis(asking.context.settings.ttl.value)),
        };
        json(&object)? + "\n"
    } else {
        detached.map_or_else(
            || SKIPPED.to_owned(),
            |Detached { owner, token, .. }| {
                format!(
                    "export LEASEHOLD_NAME={} LEASEHOLD_TOKEN={token} LEASEHOLD_OWNER={}\n",
                    in_quotes(name),
                    owner.to_hex()
                )
            },
        )
    };
    printer.hand_over(&text)
}
