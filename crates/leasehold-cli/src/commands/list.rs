//! `leasehold list`: the locks that are held.

use leasehold::Inspection;
use leasehold_core::clock;

use super::Context;
use crate::args::List;
use crate::duration;
use crate::exit::Failure;
use crate::show::{self, LockJson};

const HEAD: [&str; 7] = ["NAME", "HOLDER", "TOKEN", "HELD", "LEFT", "WAITING", "NOTE"];

pub(crate) async fn list(args: List, context: &Context) -> Result<u8, Failure> {
    let store = context.connect().await?;
    let info = store.client.info();
    if info.capabilities.list_scans && args.prefix.is_empty() && !args.all {
        return Err(Failure::usage(format!(
            "on {} a list looks through every key that the server has: name a prefix, as in `leasehold list jobs/`, \
             or say --all",
            info.store
        )));
    }
    let list = async || store.client.list(&args.prefix).await;
    let found = context.first(&store, "list", None, list).await?;
    store.client.close().await;
    if context.printer.json {
        for lock in &found {
            context
                .printer
                .out_json(&LockJson::new(lock, &store.shown))?;
        }
    } else if !found.is_empty() {
        let rows: Vec<_> = found.iter().map(row).collect();
        context.printer.out(&show::table(HEAD, rows))?;
    }
    Ok(0)
}

fn row(lock: &Inspection) -> [String; 7] {
    let holder = lock.holder.as_ref();
    let held = holder
        .and_then(|holder| holder.since)
        .map(|since| clock::wall().duration_since(since).unwrap_or_default());
    let unknown = || "-".to_owned();
    [
        lock.name.to_string(),
        holder.map_or_else(unknown, |holder| show::who(holder.identity.as_ref())),
        holder
            .and_then(|holder| holder.token)
            .map_or_else(unknown, |token| token.to_string()),
        held.map_or_else(unknown, duration::show),
        holder
            .and_then(|holder| holder.expires_in)
            .map_or_else(unknown, duration::show),
        lock.waiters.len().to_string(),
        holder.and_then(show::note).unwrap_or_default(),
    ]
}
