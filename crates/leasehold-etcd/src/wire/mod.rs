//! The part of etcd's protocol that locks need, as messages written by hand: building needs no protoc.
//!
//! Field numbers are those of etcd's `rpc.proto` and `kv.proto`, API version 3. Fields that nobody here reads or
//! sets are left out; a protobuf decoder skips them.

mod kv;
mod lease;
mod other;
mod watch;

pub(crate) use kv::*;
pub(crate) use lease::*;
pub(crate) use other::*;
pub(crate) use watch::*;

/// What every answer begins with.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// A request of one answer: where it goes and what comes back.
pub(crate) trait Request: prost::Message + Clone + 'static {
    type Answer: Answer;
    const PATH: &'static str;
}

/// An answer with its header.
pub(crate) trait Answer: prost::Message + Default + 'static {
    fn header(&self) -> Option<Header>;
}

/// Says where requests go and that their answers have a header.
macro_rules! requests {
    ($($request:ty => $answer:ty, $path:literal;)+) => {$(
        impl $crate::wire::Request for $request {
            type Answer = $answer;
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
        }
        impl $crate::wire::Answer for $answer {
            fn header(&self) -> Option<$crate::wire::Header> {
                self.header
            }
        }
    )+};
}
pub(crate) use requests;
