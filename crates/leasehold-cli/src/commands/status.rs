//! `leasehold status`: who holds a lock.

use leasehold::Inspection;

use super::Context;
use crate::args::Name;
use crate::exit::{FREE, Failure};
use crate::show::{self, LockJson};

pub(crate) async fn status(args: Name, context: &Context) -> Result<u8, Failure> {
    let store = context.connect().await?;
    let inspect = async || store.client.inspect(&args.name).await;
    let found = context
        .first(&store, "status", Some(&args.name), inspect)
        .await?;
    store.client.close().await;
    if context.printer.json {
        context
            .printer
            .out_json(&LockJson::new(&found, &store.shown))?;
    } else {
        context.printer.out(&text(&found, &store.shown))?;
    }
    Ok(if found.holder.is_some() { 0 } else { FREE })
}

fn text(found: &Inspection, store: &str) -> String {
    let mut lines = Vec::new();
    match &found.holder {
        Some(holder) => {
            lines.push(format!(
                "{}: held by {}",
                found.name,
                show::who(holder.identity.as_ref())
            ));
            let time = [show::since(holder), show::expires(holder)];
            let time: Vec<String> = time.into_iter().flatten().collect();
            if !time.is_empty() {
                lines.push(format!("  {}", time.join(", ")));
            }
            if let Some(note) = show::note(holder) {
                lines.push(format!("  note   {note}"));
            }
            if let Some(token) = holder.token {
                lines.push(format!("  token  {token}"));
            }
        }
        None => {
            lines.push(format!("{}: free", found.name));
            if let Some(token) = found.last_token {
                lines.push(format!("  last token  {token}"));
            }
        }
    }
    lines.push(format!("  store  {store}"));
    for (at, waiter) in found.waiters.iter().enumerate() {
        lines.push(format!(
            "  waiting {}  {}",
            at + 1,
            show::waiter(waiter.as_ref())
        ));
    }
    lines.extend(
        found
            .remarks
            .iter()
            .map(|remark| format!("  store note  {}", show::clean(remark))),
    );
    lines.join("\n") + "\n"
}
