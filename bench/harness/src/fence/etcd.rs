//! A key of etcd.

use leasehold_bench_load::{Result, text};
use leasehold_core::Name;
use leasehold_fence::etcd;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use super::mark;
use crate::raw_etcd::call;
use crate::ways::{self, Way};
use crate::wire::{Op, Request, RequestOp, TxnResponse};

/// A transaction that compares a value, which no lock of leasehold's does.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    value: Vec<u8>,
}

const GREATER: i32 = 1;
const VALUE: i32 = 3;

impl Request for Txn {
    type Answer = TxnResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Txn";
}

struct Server {
    runtime: Runtime,
    channel: Channel,
}

pub(super) fn ways(url: &str) -> Result<Vec<Way>> {
    let stock: Name = "stock".parse().map_err(text)?;
    let (key, mark) = (etcd::key(&stock), etcd::text(mark()?));
    let write = || Op::put(b"stock", b"41".to_vec(), 0);
    let unguarded = Txn {
        compare: Vec::new(),
        success: vec![write()],
        failure: Vec::new(),
    };
    let guarded = Txn {
        compare: vec![Compare {
            result: GREATER,
            target: VALUE,
            key: key.clone().into_bytes(),
            value: mark.clone().into_bytes(),
        }],
        success: vec![Op::get(key.as_bytes())],
        failure: vec![Op::put(key.as_bytes(), mark.into_bytes(), 0), write()],
    };
    let (plain, fenced) = (open(url)?, open(url)?);
    Ok(vec![
        Way::new("unguarded", move || plain.send(&unguarded, true)),
        Way::new("the comparison and the mark with it", move || {
            fenced.send(&guarded, false)
        }),
    ])
}

fn open(url: &str) -> Result<Server> {
    let (_, host) = url.split_once("://").ok_or("no URL")?;
    let endpoint = Endpoint::from_shared(format!("http://{host}")).map_err(text)?;
    let runtime = ways::runtime()?;
    let channel = runtime.block_on(endpoint.tcp_nodelay(true).connect());
    Ok(Server {
        channel: channel.map_err(text)?,
        runtime,
    })
}

impl Server {
    fn send(&self, txn: &Txn, succeeds: bool) -> Result<()> {
        let answer = self.runtime.block_on(call(&self.channel, txn.clone()))?;
        if answer.succeeded == succeeds {
            Ok(())
        } else {
            Err("a newer holder has been there".into())
        }
    }
}
