//! What etcd's members agree on: keys, revisions and leases, as a state machine without time.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::{
    Compare, DeleteRangeResponse, Event, EventType, Expected, KeyValue, Op, OpAnswer, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RequestOp, ResponseOp, SortOrder, SortTarget,
    TxnRequest, TxnResponse,
};

/// The revision of a store in which nothing was written yet.
const FIRST: i64 = 1;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) revision: i64,
    keys: BTreeMap<Vec<u8>, KeyValue>,
    pub(super) leases: BTreeMap<i64, Granted>,
    /// All that ever happened.
    pub(super) history: Vec<Event>,
    last_lease: i64,
}

/// A lease and what hangs on it.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    /// In seconds.
    pub(super) ttl: i64,
    pub(super) keys: BTreeSet<Vec<u8>>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            revision: FIRST,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            history: Vec::new(),
            last_lease: 0x1000,
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &KeyValue> {
        self.keys.values()
    }

    pub(super) fn grant(&mut self, ttl: i64) -> i64 {
        self.last_lease += 1;
        let keys = BTreeSet::new();
        self.leases.insert(self.last_lease, Granted { ttl, keys });
        self.last_lease
    }

    /// Ends a lease and every key on it, as one revision.
    pub(super) fn revoke(&mut self, id: i64) {
        let Some(lease) = self.leases.remove(&id) else {
            return;
        };
        let at = self.revision + 1;
        for key in lease.keys {
            self.delete(&key, at);
        }
    }

    /// Carries a transaction out, or none of it where a lease it names doesn't exist.
    pub(super) fn txn(&mut self, request: &TxnRequest) -> Option<TxnResponse> {
        let all = request.success.iter().chain(&request.failure);
        if !all.clone().all(|op| self.has_lease(op)) {
            return None;
        }
        let at = self.revision + 1;
        Some(self.run(request, at))
    }

    fn has_lease(&self, op: &RequestOp) -> bool {
        match &op.request {
            Some(Op::Put(put)) => put.lease == 0 || self.leases.contains_key(&put.lease),
            Some(Op::Txn(txn)) => {
                let all = txn.success.iter().chain(&txn.failure);
                all.clone().all(|op| self.has_lease(op))
            }
            _ => true,
        }
    }

    fn run(&mut self, request: &TxnRequest, at: i64) -> TxnResponse {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded {
            &request.success
        } else {
            &request.failure
        };
        let responses = ops.iter().map(|op| ResponseOp {
            response: op.request.as_ref().map(|op| self.apply(op, at)),
        });
        TxnResponse {
            succeeded,
            responses: responses.collect(),
            header: None,
        }
    }

    fn apply(&mut self, op: &Op, at: i64) -> OpAnswer {
        match op {
            Op::Range(range) => OpAnswer::Range(self.range(range)),
            Op::Put(put) => {
                self.put(put, at);
                OpAnswer::Put(PutResponse { header: None })
            }
            Op::Delete(delete) => OpAnswer::Delete(DeleteRangeResponse {
                header: None,
                deleted: i64::from(self.delete(&delete.key, at)),
            }),
            Op::Txn(txn) => OpAnswer::Txn(self.run(txn, at)),
        }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let is = |kv: Option<&KeyValue>| match compare.expected {
            Some(Expected::Create(at)) => kv.map_or(0, |kv| kv.create_revision) == at,
            Some(Expected::Mod(at)) => kv.map_or(0, |kv| kv.mod_revision) == at,
            None => false,
        };
        if compare.range_end.is_empty() {
            return is(self.keys.get(&compare.key));
        }
        // A range without keys is compared as a key that doesn't exist.
        let mut range = self
            .keys
            .range(compare.key.clone()..compare.range_end.clone())
            .peekable();
        if range.peek().is_none() {
            return is(None);
        }
        range.all(|(_, kv)| is(Some(kv)))
    }

    pub(super) fn range(&self, request: &RangeRequest) -> RangeResponse {
        let mut kvs: Vec<KeyValue> = if request.range_end.is_empty() {
            self.keys.get(&request.key).cloned().into_iter().collect()
        } else {
            let range = request.key.clone()..request.range_end.clone();
            self.keys.range(range).map(|(_, kv)| kv.clone()).collect()
        };
        if request.sort_order == i32::from(SortOrder::Ascend)
            && request.sort_target == i32::from(SortTarget::Create)
        {
            kvs.sort_by_key(|kv| kv.create_revision);
        }
        let limit = usize::try_from(request.limit).unwrap();
        let more = limit > 0 && kvs.len() > limit;
        if more {
            kvs.truncate(limit);
        }
        RangeResponse {
            header: None,
            kvs,
            more,
        }
    }

    fn put(&mut self, put: &PutRequest, at: i64) {
        self.revision = at;
        let old = self.keys.get(&put.key);
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision: old.map_or(at, |old| old.create_revision),
            mod_revision: at,
            value: put.value.clone(),
            lease: put.lease,
        };
        if let Some(old) = self.keys.insert(put.key.clone(), kv.clone())
            && let Some(lease) = self.leases.get_mut(&old.lease)
        {
            lease.keys.remove(&put.key);
        }
        if let Some(lease) = self.leases.get_mut(&put.lease) {
            lease.keys.insert(put.key.clone());
        }
        self.history.push(Event {
            kind: EventType::Put.into(),
            kv: Some(kv),
        });
    }

    fn delete(&mut self, key: &[u8], at: i64) -> bool {
        let Some(old) = self.keys.remove(key) else {
            return false;
        };
        self.revision = at;
        if let Some(lease) = self.leases.get_mut(&old.lease) {
            lease.keys.remove(key);
        }
        self.history.push(Event {
            kind: EventType::Delete.into(),
            kv: Some(KeyValue {
                key: key.to_vec(),
                mod_revision: at,
                ..KeyValue::default()
            }),
        });
        true
    }
}
