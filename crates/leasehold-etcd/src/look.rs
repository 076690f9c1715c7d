//! What operators see and do.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::backend::{Broken, Inspection};
use leasehold_core::{Holder, Identity, Name, Result, Token};

use crate::attempt;
use crate::backend::Shared;
use crate::keys;
use crate::note::{self, Note};
use crate::wire::{
    Compare, KeyValue, LeaseTimeToLiveRequest, Op, RangeRequest, SortOrder, SortTarget, TxnRequest,
};

/// How many keys one request reads while locks are looked for.
const PAGE: i64 = 1000;

/// Who holds a lock and who waits for it.
pub(crate) async fn inspect(shared: &Shared, name: &Name) -> Result<Inspection> {
    let found = shared
        .grants
        .ask(keys::oldest(name, 0), shared.patience())
        .await?;
    let mut inspection = Inspection::free(name.clone());
    let mut places = found.kvs.iter().filter(|kv| keys::is_place(name, kv));
    if let Some(first) = places.next() {
        inspection.holder = Some(holder(shared, first).await?);
        inspection.waiters = places.map(identity).collect();
    }
    Ok(inspection)
}

/// All locks held now whose name begins with `prefix`.
pub(crate) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<Inspection>> {
    let mut names = BTreeSet::new();
    let mut page = RangeRequest {
        // Zero alone stands for the first key there is.
        key: if prefix.is_empty() {
            vec![0]
        } else {
            prefix.as_bytes().to_vec()
        },
        range_end: keys::behind(prefix.as_bytes()),
        limit: PAGE,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Key.into(),
        keys_only: true,
    };
    loop {
        let found = shared.grants.ask(page.clone(), shared.patience()).await?;
        let locks = found.kvs.iter().filter_map(keys::lock_of);
        names.extend(locks.filter(|name| name.as_str().starts_with(prefix)));
        match found.kvs.last() {
            Some(last) if found.more => {
                page.key.clone_from(&last.key);
                page.key.push(0);
            }
            _ => break,
        }
    }
    let mut held = Vec::new();
    for name in names {
        let inspection = inspect(shared, &name).await?;
        if inspection.holder.is_some() {
            held.push(inspection);
        }
    }
    Ok(held)
}

/// Deletes the holder's key; with `token`, only where that is its revision.
pub(crate) async fn break_hold(
    shared: &Shared,
    name: &Name,
    token: Option<Token>,
) -> Result<Broken> {
    loop {
        let found = shared
            .grants
            .ask(keys::oldest(name, 0), shared.patience())
            .await?;
        let Some(first) = attempt::first(name, &found) else {
            return Ok(Broken::Free);
        };
        let holder = holder(shared, first).await?;
        if token.is_some() && token != holder.token {
            return Ok(Broken::OtherToken(holder));
        }
        let delete = TxnRequest {
            compare: vec![Compare::created(&first.key, first.create_revision)],
            success: vec![Op::delete(&first.key)],
            failure: Vec::new(),
        };
        if shared
            .grants
            .call(delete, shared.patience())
            .await?
            .succeeded
        {
            return Ok(Broken::Ended(holder));
        }
        // It ended meanwhile: look who is next.
    }
}

/// A holder with what is left of its lease.
async fn holder(shared: &Shared, kv: &KeyValue) -> Result<Holder> {
    let request = LeaseTimeToLiveRequest {
        id: kv.lease,
        keys: false,
    };
    let mut holder = note::holder(kv);
    match shared.grants.ask(request, shared.patience()).await {
        Ok(left) => {
            holder.expires_in = u64::try_from(left.ttl).ok().map(Duration::from_secs);
        }
        // Ended since.
        Err(crate::error::Failure::LeaseGone) => {}
        Err(failure) => return Err(failure.into()),
    }
    Ok(holder)
}

fn identity(kv: &KeyValue) -> Option<Identity> {
    Note::of(kv).map(|note| note.identity)
}
