//! `leasehold redlock`: what an operator says about the nodes of Redlock.

use super::{Context, doctor};
use crate::exit::Failure;

/// Nothing relies on a lock from before: nodes that forgot count again. Shows how they stand then.
pub(crate) async fn rejoin(context: &Context) -> Result<u8, Failure> {
    let (url, shown) = context.chosen()?;
    let rejoining = async || {
        let rejoined = leasehold::redlock::rejoin(url.clone()).await;
        rejoined.map_err(|error| Failure::connecting(&error))
    };
    let findings = context
        .first_answer(rejoining)
        .await
        .map_err(|failure| failure.during("rejoin").on(&shown))?;
    doctor::print(&context.printer, &shown, &findings)?;
    Ok(0)
}
