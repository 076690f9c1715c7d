//! Credentials, and what a member says of itself.

use super::{Header, requests};

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    /// Alarms, corruption, no leader.
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
    #[prost(bool, tag = "10")]
    pub(crate) is_learner: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct MemberListRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Member {
    /// It follows the others and has no vote.
    #[prost(bool, tag = "5")]
    pub(crate) is_learner: bool,
}

requests! {
    AuthenticateRequest => AuthenticateResponse, "Auth/Authenticate";
    StatusRequest => StatusResponse, "Maintenance/Status";
    MemberListRequest => MemberListResponse, "Cluster/MemberList";
}

/// A password or a token is shown to nobody.
macro_rules! hidden {
    ($($message:ident),+) => {$(
        impl std::fmt::Debug for $message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($message), "(…)"))
            }
        }
    )+};
}
hidden!(AuthenticateRequest, AuthenticateResponse);
