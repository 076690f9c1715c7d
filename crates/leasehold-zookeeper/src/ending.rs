//! How a place ends: its node deleted, whether or not an answer ever said that there is one.

use std::time::Duration;

use leasehold_core::Name;

use crate::config::Config;
use crate::error::{Failure, unexpected};
use crate::keys;
use crate::link::Link;
use crate::session::{Made, Session};
#[cfg(test)]
use crate::simulation::fault::{self, Fault};
use crate::wire::Request;

/// Deletes what a place made; answers whether anything was there. After tries without an answer it looks what they
/// made: what isn't there now never will be (see [`crate::link`]).
pub(crate) async fn end(
    link: &Link,
    session: &Session,
    config: &Config,
    name: &Name,
    patience: Duration,
) -> Result<bool, Failure> {
    let left = session.place(name, |place| (place.made.clone(), place.unanswered));
    let nodes = match left {
        None | Some((None, 0)) => return Ok(false),
        #[cfg(test)]
        Some((None, _)) if fault::is_put_in(Fault::LeavesOrphans) => return Ok(false),
        Some((Some(made), 0)) => vec![made.path],
        Some(_) => match own(link, &config.path(name), patience).await {
            Err(Failure::SessionOver) => return Ok(false),
            nodes => nodes?,
        },
    };
    let mut deleted = false;
    let deletes = nodes.iter().map(|node| Request::delete(node));
    for outcome in link.call_each(deletes, patience).await {
        match outcome {
            Ok(_) => deleted = true,
            // With the session all of its nodes ended.
            Err(Failure::NoNode | Failure::SessionOver) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(deleted)
}

/// What tries without an answer made: the first of it, the rest is deleted. Nothing more of them will appear.
pub(crate) async fn find(
    link: &Link,
    lock: &str,
    patience: Duration,
) -> Result<Option<Made>, Failure> {
    let mut nodes = own(link, lock, patience).await?;
    let children = nodes.iter().filter_map(|path| path.rsplit('/').next());
    let first = keys::queue(children.map(str::to_owned).collect())
        .into_iter()
        .next();
    let Some(first) = first.map(|child| format!("{lock}/{child}")) else {
        return Ok(None);
    };
    nodes.retain(|node| *node != first);
    for outcome in link
        .call_each(nodes.iter().map(|node| Request::delete(node)), patience)
        .await
    {
        if let Err(failure @ (Failure::Unanswered(_) | Failure::Refused(_))) = outcome {
            return Err(failure);
        }
    }
    let [found] = link.call([Request::exists(&first, false)], patience).await;
    match found {
        Ok(found) => Ok(Some(Made {
            path: first,
            stat: found
                .stat()
                .ok_or_else(|| Failure::Refused(unexpected("the node")))?,
        })),
        Err(Failure::NoNode) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// This session's places in the queue of `lock`: of the one attempt that has one on it.
async fn own(link: &Link, lock: &str, patience: Duration) -> Result<Vec<String>, Failure> {
    // Only what the leader has done by now is the end of what was sent before.
    let look = [Request::sync(lock), Request::own(&format!("{lock}/"))];
    #[cfg(test)]
    let look = fault::look(look, Fault::EndsWithoutSync);
    let [synced, own] = link.call(look, patience).await;
    let mut nodes = synced
        .and(own)?
        .texts()
        .ok_or_else(|| Failure::Refused(unexpected("the session's nodes")))?;
    nodes.retain(|node| keys::is_place_of(lock, node));
    Ok(nodes)
}
