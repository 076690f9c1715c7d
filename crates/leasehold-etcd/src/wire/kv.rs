//! Keys, values and transactions.

use super::{Header, requests};

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SortOrder {
    None = 0,
    Ascend = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SortTarget {
    Key = 0,
    Create = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub(crate) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
    /// Leave the value as it is.
    #[prost(bool, tag = "5")]
    pub(crate) ignore_value: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) deleted: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3, 4")]
    pub(crate) request: Option<Op>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub(crate) enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "OpAnswer", tags = "1, 2, 3, 4")]
    pub(crate) response: Option<OpAnswer>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub(crate) enum OpAnswer {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

/// What a comparison is of. The result wanted is always equality, which is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Expected", tags = "5, 6")]
    pub(crate) expected: Option<Expected>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub(crate) enum Expected {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

requests! {
    RangeRequest => RangeResponse, "KV/Range";
    TxnRequest => TxnResponse, "KV/Txn";
}

impl Compare {
    /// True where the key was created at this revision; at zero, where it doesn't exist.
    pub(crate) fn created(key: &[u8], revision: i64) -> Self {
        Self {
            target: CompareTarget::Create.into(),
            key: key.to_vec(),
            expected: Some(Expected::Create(revision)),
            range_end: Vec::new(),
        }
    }

    /// True where the key was last written at this revision.
    pub(crate) fn written(key: &[u8], revision: i64) -> Self {
        Self {
            target: CompareTarget::Mod.into(),
            expected: Some(Expected::Mod(revision)),
            ..Self::created(key, revision)
        }
    }

    /// True where there is no key from `from` on and before `to`.
    pub(crate) fn empty(from: &[u8], to: &[u8]) -> Self {
        Self {
            range_end: to.to_vec(),
            ..Self::created(from, 0)
        }
    }
}

impl From<Op> for RequestOp {
    fn from(op: Op) -> Self {
        Self { request: Some(op) }
    }
}

impl Op {
    pub(crate) fn put(key: &[u8], value: Vec<u8>, lease: i64) -> RequestOp {
        Self::Put(PutRequest {
            key: key.to_vec(),
            value,
            lease,
            ignore_value: false,
        })
        .into()
    }

    /// Hangs a key that exists on another lease.
    pub(crate) fn rehang(key: &[u8], lease: i64) -> RequestOp {
        Self::Put(PutRequest {
            key: key.to_vec(),
            value: Vec::new(),
            lease,
            ignore_value: true,
        })
        .into()
    }

    pub(crate) fn delete(key: &[u8]) -> RequestOp {
        Self::Delete(DeleteRangeRequest { key: key.to_vec() }).into()
    }

    pub(crate) fn get(key: &[u8]) -> RequestOp {
        Self::Range(RangeRequest::one(key)).into()
    }
}

impl RangeRequest {
    pub(crate) fn one(key: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            ..Self::default()
        }
    }
}

impl TxnResponse {
    /// What the range at this place among the operations found.
    pub(crate) fn range(&self, at: usize) -> Option<&RangeResponse> {
        match self.responses.get(at)?.response.as_ref()? {
            OpAnswer::Range(range) => Some(range),
            _ => None,
        }
    }

    /// The answer of the transaction at this place.
    pub(crate) fn nested(&self, at: usize) -> Option<&TxnResponse> {
        match self.responses.get(at)?.response.as_ref()? {
            OpAnswer::Txn(txn) => Some(txn),
            _ => None,
        }
    }
}
