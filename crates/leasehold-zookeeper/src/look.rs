//! What operators see and do.

use leasehold_core::backend::{Broken, Inspection};
use leasehold_core::{Error, ErrorKind, Holder, Name, Result, Token};

use crate::backend::Shared;
use crate::contender::texts;
use crate::error::{Failure, unexpected};
use crate::keys;
use crate::note;
use crate::wire::{Answer, Request, Stat};

/// How many nodes are asked for at once.
const BATCH: usize = 256;

/// Who holds a lock and who waits for it.
pub(crate) async fn inspect(shared: &Shared, name: &Name) -> Result<Inspection> {
    let mut inspection = Inspection::free(name.clone());
    let queue = shared.queue(name).await?;
    let lock = shared.config.path(name);
    let requests = queue
        .iter()
        .map(|place| Request::data(&format!("{lock}/{place}"), false));
    let mut places = Vec::new();
    for answer in each(shared, requests.collect()).await? {
        match answer {
            Ok(answer) => places.push(data(&answer)?),
            // It ended meanwhile.
            Err(Failure::NoNode) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    let mut places = places.into_iter();
    if let Some((data, stat)) = places.next() {
        inspection.holder = Some(note::holder(&data, stat));
        inspection.waiters = places.map(|(data, _)| note::identity(&data)).collect();
    }
    Ok(inspection)
}

/// All locks held now whose name begins with `prefix`.
pub(crate) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<Inspection>> {
    let wanted = keys::written(prefix);
    // What is before the last slash is a node's whole name.
    let mut level = vec![wanted[..wanted.rfind('/').unwrap_or(0)].to_owned()];
    let mut names = Vec::new();
    while !level.is_empty() {
        let requests = level
            .iter()
            .map(|node| Request::children(&shared.config.node(node)));
        let answers = each(shared, requests.collect()).await?;
        let mut below = Vec::new();
        for (node, answer) in level.iter().zip(answers) {
            let children = match answer {
                Ok(answer) => texts(&answer)?,
                Err(Failure::NoNode) => continue,
                Err(failure) => {
                    hidden(Error::from(failure).named(node), &wanted, node)?;
                    continue;
                }
            };
            let child = |child: &String| match node.as_str() {
                "" => child.clone(),
                _ => format!("{node}/{child}"),
            };
            // Names that no lock can have have no locks below them: the server's own, and queues' places.
            below.extend(children.iter().map(child).filter(|child| {
                let leads = child.starts_with(&wanted) || wanted.starts_with(&format!("{child}/"));
                leads && keys::read(child).is_some_and(|name| keys::not_a_place(&name).is_ok())
            }));
            if node.starts_with(&wanted) && !keys::queue(children).is_empty() {
                names.extend(keys::read(node));
            }
        }
        level = below;
    }
    names.sort_unstable();
    let mut held = Vec::new();
    for name in names {
        match inspect(shared, &name).await {
            Ok(inspection) if inspection.holder.is_some() => held.push(inspection),
            Ok(_) => {}
            Err(error) => hidden(
                error.named(name.as_str()),
                &wanted,
                &keys::written(name.as_str()),
            )?,
        }
    }
    Ok(held)
}

/// Passes over what another user keeps to himself, which is no reason to hide the other locks; but not over the place
/// that was asked for.
fn hidden(error: Error, wanted: &str, node: &str) -> Result<()> {
    let asked_for = wanted.trim_end_matches('/') == node || wanted.starts_with(&format!("{node}/"));
    if error.kind() != ErrorKind::Unauthorized || asked_for {
        return Err(error);
    }
    tracing::warn!(%error, "a part of the tree can't be listed");
    Ok(())
}

/// Deletes the holder's node; with `token`, only where that is the one that made it.
pub(crate) async fn break_hold(
    shared: &Shared,
    name: &Name,
    token: Option<Token>,
) -> Result<Broken> {
    let lock = shared.config.path(name);
    loop {
        let queue = shared.queue(name).await?;
        let Some(first) = queue.first() else {
            return Ok(Broken::Free);
        };
        let node = format!("{lock}/{first}");
        let [found] = shared.ask([Request::data(&node, false)]).await?;
        let holder: Holder = match found {
            Ok(found) => {
                let (data, stat) = data(&found)?;
                note::holder(&data, stat)
            }
            Err(Failure::NoNode) => continue,
            Err(failure) => return Err(failure.into()),
        };
        if token.is_some() && token != holder.token {
            return Ok(Broken::OtherToken(holder));
        }
        let [deleted] = shared.ask([Request::delete(&node)]).await?;
        match deleted {
            Ok(_) => return Ok(Broken::Ended(holder)),
            // It ended meanwhile, or an earlier request did it: look who is next.
            Err(Failure::NoNode) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}

fn data(answer: &Answer) -> Result<(Vec<u8>, Stat)> {
    answer.data().ok_or_else(|| unexpected("the node"))
}

async fn each(shared: &Shared, requests: Vec<Request>) -> Result<Vec<Result<Answer, Failure>>> {
    let desk = shared.desk().await?;
    let mut answers = Vec::with_capacity(requests.len());
    for batch in requests.chunks(BATCH) {
        let batch = batch.iter().cloned();
        answers.extend(desk.call_each(batch, shared.patience()).await);
    }
    Ok(answers)
}
