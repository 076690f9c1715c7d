//! What leasehold on etcd is measured against: the least requests that a lock can be, and the server's own lock service.
//!
//! Both speak by the messages of leasehold's client over a plain channel.

use leasehold_bench_load::{Result, Subject, TTL, text};
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::wire::{Compare, Header, LeaseGrantRequest, Op, Request, RequestOp, TxnRequest};

/// A connection with a lease that is ready. Rounds are shorter than its TTL, and each has a process of its own.
struct Connection {
    channel: Channel,
    lease: i64,
}

impl Connection {
    async fn open(url: &str) -> Result<Self> {
        let (_, host) = url.split_once("://").ok_or("no URL")?;
        let endpoint = Endpoint::from_shared(format!("http://{host}")).map_err(text)?;
        let channel = endpoint.tcp_nodelay(true).connect().await.map_err(text)?;
        let ttl = i64::try_from(TTL.as_secs()).map_err(text)? * 4;
        let lease = call(&channel, LeaseGrantRequest { ttl }).await?.id;
        Ok(Self { channel, lease })
    }
}

/// A transaction that puts the key where it isn't, and one that deletes it where it is.
pub(crate) struct RawEtcd(Connection);

impl RawEtcd {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(Connection::open(url).await?))
    }

    async fn txn(&self, compare: Compare, then: RequestOp) -> Result<(bool, i64)> {
        let txn = TxnRequest {
            compare: vec![compare],
            success: vec![then],
            failure: Vec::new(),
        };
        let answer = call(&self.0.channel, txn).await?;
        // With nothing beside it in the transaction, that is the revision of what it wrote.
        Ok((answer.succeeded, answer.header.unwrap_or_default().revision))
    }
}

impl Subject for RawEtcd {
    type Hold = (Vec<u8>, i64);

    async fn acquire(&self, name: &str) -> Result<(Vec<u8>, i64)> {
        let key = format!("{name}/raw").into_bytes();
        let put = Op::put(&key, Vec::new(), self.0.lease);
        let (done, revision) = self.txn(Compare::created(&key, 0), put).await?;
        if done {
            Ok((key, revision))
        } else {
            Err(format!("{name} is held"))
        }
    }

    async fn release(&self, key: (Vec<u8>, i64)) -> Result<()> {
        let (key, made) = key;
        let (done, _) = self
            .txn(Compare::created(&key, made), Op::delete(&key))
            .await?;
        if done {
            Ok(())
        } else {
            Err("it was not held".into())
        }
    }
}

/// The lock service that the server has, with a lease for each acquisition, as it must be where many contend.
pub(crate) struct LockService(Channel);

impl LockService {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(Connection::open(url).await?.channel))
    }
}

impl Subject for LockService {
    type Hold = Vec<u8>;

    async fn acquire(&self, name: &str) -> Result<Vec<u8>> {
        let ttl = i64::try_from(TTL.as_secs()).map_err(text)?;
        let lease = call(&self.0, LeaseGrantRequest { ttl }).await?.id;
        let name = name.as_bytes().to_vec();
        Ok(call(&self.0, LockRequest { name, lease }).await?.key)
    }

    async fn release(&self, key: Vec<u8>) -> Result<()> {
        call(&self.0, UnlockRequest { key }).await.map(drop)
    }
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct LockResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct UnlockResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

impl Request for LockRequest {
    type Answer = LockResponse;
    const PATH: &'static str = "/v3lockpb.Lock/Lock";
}

impl Request for UnlockRequest {
    type Answer = UnlockResponse;
    const PATH: &'static str = "/v3lockpb.Lock/Unlock";
}

impl crate::wire::Answer for LockResponse {
    fn header(&self) -> Option<Header> {
        self.header
    }
}

impl crate::wire::Answer for UnlockResponse {
    fn header(&self) -> Option<Header> {
        self.header
    }
}

pub(crate) async fn call<R: Request>(channel: &Channel, request: R) -> Result<R::Answer> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(text)?;
    let path = http::uri::PathAndQuery::from_static(R::PATH);
    let codec: ProstCodec<R, R::Answer> = ProstCodec::default();
    let answer = grpc.unary(tonic::Request::new(request), path, codec).await;
    Ok(answer.map_err(text)?.into_inner())
}
