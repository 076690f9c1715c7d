//! `leasehold break`: takes a lock away from its holder.

use leasehold::Holder;
use leasehold::store::Broken;
use serde::Serialize;

use super::Context;
use crate::args::Break;
use crate::exit::{FREE, Failure, LOST};
use crate::printer::SCHEMA;
use crate::show::{self, HolderJson};

#[derive(Serialize)]
struct BrokenJson<'a> {
    schema: u8,
    name: &'a str,
    store: &'a str,
    outcome: &'static str,
    holder: Option<HolderJson>,
}

pub(crate) async fn break_(args: Break, context: &Context) -> Result<u8, Failure> {
    let store = context.connect().await?;
    // Asked once: after an answer that got lost, asking again could break the next holder.
    let breaking = store.client.break_hold(&args.name, args.if_token);
    let broken = context.once(&store, "break", &args.name, breaking).await?;
    store.client.close().await;
    let (outcome, holder, code) = match &broken {
        Broken::Ended(holder) => ("broken", Some(holder), 0),
        Broken::Free => ("free", None, FREE),
        Broken::OtherToken(holder) => ("other_token", Some(holder), LOST),
    };
    let (name, at) = (args.name.as_str(), store.shown.as_str());
    if context.printer.json {
        let holder = holder.map(HolderJson::from);
        context.printer.out_json(&BrokenJson {
            schema: SCHEMA,
            name,
            store: at,
            outcome,
            holder,
        })?;
    } else {
        let token = |holder: &Holder| {
            holder.token.map_or_else(
                || "without a token".into(),
                |token| format!("with token {token}"),
            )
        };
        let text = match &broken {
            Broken::Ended(holder) => {
                format!(
                    "{name}: broken; it was {}, {}",
                    show::holder(holder),
                    token(holder)
                )
            }
            Broken::Free => format!("{name}: free; there was nothing to break"),
            Broken::OtherToken(holder) => {
                format!(
                    "{name}: not broken; it is {}, {}",
                    show::holder(holder),
                    token(holder)
                )
            }
        };
        context.printer.out(&format!("{text}, at {at}\n"))?;
    }
    Ok(code)
}
