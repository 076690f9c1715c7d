//! What leasehold on Consul is measured against: the least requests that a lock can be, without a token and with it, on
//! the same HTTP client.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leasehold_bench_load::{Result, Subject, TTL, text};

type Body = Full<Bytes>;

/// A key that is acquired for a session, which is ready, and one that is released.
pub(crate) struct RawConsul {
    http: Client<HttpConnector, Body>,
    /// Where the agent is.
    root: String,
    session: String,
}

impl RawConsul {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let (_, host) = url.split_once("://").ok_or("no URL")?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut raw = Self {
            http: Client::builder(TokioExecutor::new()).build(connector),
            root: format!("http://{host}/v1"),
            session: String::new(),
        };
        // Rounds are shorter than its TTL, and each has a process of its own.
        let ttl = TTL.as_secs() * 4;
        let made = raw.put("session/create", session(ttl)).await?;
        let id = made.split('"').nth(3).ok_or("no session was made")?;
        raw.session = id.to_owned();
        Ok(raw)
    }

    async fn put(&self, path: &str, body: String) -> Result<String> {
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("{}/{path}", self.root))
            .body(Body::from(body))
            .map_err(text)?;
        let answer = self.http.request(request).await.map_err(text)?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(text)?.to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            Ok(body)
        } else {
            Err(format!("{path}: {status} {body}"))
        }
    }

    async fn must(&self, key: &str, verb: &str) -> Result<()> {
        let path = format!("kv/{key}?{verb}={}", self.session);
        let answer = self.put(&path, "owner".into()).await?;
        if answer.trim() == "true" {
            Ok(())
        } else {
            Err(format!("{verb} of {key} was refused"))
        }
    }
}

impl Subject for RawConsul {
    type Hold = String;

    async fn acquire(&self, name: &str) -> Result<String> {
        let key = format!("{name}/raw");
        self.must(&key, "acquire").await?;
        Ok(key)
    }

    async fn release(&self, key: String) -> Result<()> {
        self.must(&key, "release").await
    }
}

/// The same by transactions: only their answer has the index that is the token.
pub(crate) struct RawTransactions(RawConsul);

impl RawTransactions {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(RawConsul::connect(url).await?))
    }

    async fn must(&self, key: &str, verb: &str) -> Result<()> {
        let session = &self.0.session;
        let step = format!(
            r#"[{{"KV":{{"Verb":"{verb}","Key":"{key}","Session":"{session}","Value":"b3duZXI="}}}}]"#
        );
        let answer = self.0.put("txn", step).await?;
        if answer.contains("ModifyIndex") {
            Ok(())
        } else {
            Err(format!("{verb} of {key}: {answer}"))
        }
    }
}

impl Subject for RawTransactions {
    type Hold = String;

    async fn acquire(&self, name: &str) -> Result<String> {
        let key = format!("{name}/raw-transaction");
        self.must(&key, "lock").await?;
        Ok(key)
    }

    async fn release(&self, key: String) -> Result<()> {
        self.must(&key, "unlock").await
    }
}

/// One without checks, so that nothing but its TTL ends it.
fn session(ttl: u64) -> String {
    format!(r#"{{"TTL":"{ttl}s","LockDelay":"0s","NodeChecks":[]}}"#)
}
