//! Requests to one agent at a time, and to another when that fails.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use leasehold_core::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::error::{self, Failure};

/// How long a connection may take to be made, where there is no other agent to turn to.
const CONNECT: Duration = Duration::from_secs(4);
/// And where there is.
const CONNECT_OF_SEVERAL: Duration = Duration::from_secs(1);
/// How long a connection is kept without use.
const IDLE: Duration = Duration::from_secs(50);
/// How many requests are under way at once: an agent takes 200 connections of one host unless it is set otherwise.
const AT_ONCE: usize = 32;
/// The largest answer that is taken: the names of a million keys.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A request as it goes out.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The path, encoded, with its query.
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Bytes::new(),
        }
    }

    pub(crate) fn put(path: String, body: Vec<u8>) -> Self {
        Self {
            method: Method::PUT,
            path,
            body: body.into(),
        }
    }
}

/// An answer: a success, or that what was asked for isn't there, or that a comparison failed.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// What a blocking query goes on from; 0 where the answer has none.
    pub(crate) index: u64,
    pub(crate) body: Bytes,
}

/// Connections, which live on the runtime of whoever made them.
pub(crate) struct Link {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoints: Vec<String>,
    token: Option<HeaderValue>,
    /// Where the locks are; none for where the agent is.
    pub(crate) datacenter: Option<String>,
    current: Mutex<Current>,
    permits: Semaphore,
}

#[derive(Clone, Copy, Debug, Default)]
struct Current {
    /// Which agent.
    at: usize,
    generation: u64,
}

impl Link {
    /// Connects on first use.
    pub(crate) fn new(config: &Config) -> Result<Self> {
        Self::to(config, config.endpoints.clone())
    }

    /// A link to the agent at this place alone.
    pub(crate) fn to_agent(config: &Config, at: usize) -> Result<Self> {
        Self::to(config, vec![config.endpoints[at].clone()])
    }

    fn to(config: &Config, endpoints: Vec<String>) -> Result<Self> {
        let several = endpoints.len() > 1;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(10)));
        tcp.set_connect_timeout(Some(if several { CONNECT_OF_SEVERAL } else { CONNECT }));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let token = config.token.as_ref().map(|token| {
            let value = HeaderValue::from_str(token).map(|mut value| {
                value.set_sensitive(true);
                value
            });
            value.map_err(|_| Error::new(ErrorKind::Invalid, "the token can't be sent as it is"))
        });
        Ok(Self {
            http: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(AT_ONCE)
                .build(connector),
            endpoints,
            token: token.transpose()?,
            datacenter: config.datacenter.clone(),
            current: Mutex::default(),
            permits: Semaphore::new(AT_ONCE),
        })
    }

    /// How many agents there are to turn to.
    pub(crate) fn agents(&self) -> usize {
        self.endpoints.len()
    }

    /// Sends a request to one agent, or to the next ones where nothing could be sent.
    pub(crate) async fn call(&self, call: &Call, patience: Duration) -> Result<Answer, Failure> {
        let _permit = self.permit().await;
        let mut tried = 1;
        loop {
            match self.once(call, patience).await {
                Err(Failure::Unsent(_)) if tried < self.agents() => tried += 1,
                outcome => return outcome,
            }
        }
    }

    /// As [`call`](Self::call), for a request that may as well be processed twice: tries every agent.
    pub(crate) async fn ask(&self, call: &Call, patience: Duration) -> Result<Answer, Failure> {
        let mut tried = 1;
        loop {
            match self.call(call, patience).await {
                Err(failure) if failure.is_of_the_agent() && tried < self.agents() => tried += 1,
                outcome => return outcome,
            }
        }
    }

    /// As [`call`](Self::call), for a request that is answered when something happens: it stands in nobody's way.
    pub(crate) async fn wait(&self, call: &Call, patience: Duration) -> Result<Answer, Failure> {
        self.once(call, patience).await
    }

    /// Changes whenever another agent is turned to.
    pub(crate) fn turn(&self) -> u64 {
        self.lock().generation
    }

    async fn permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        // It is never closed.
        self.permits.acquire().await.ok()
    }

    /// One request to the current agent.
    async fn once(&self, call: &Call, patience: Duration) -> Result<Answer, Failure> {
        let current = *self.lock();
        let answer = tokio::time::timeout(patience, self.send(call, &self.endpoints[current.at]))
            .await
            .unwrap_or_else(|_| {
                Err(Failure::Unanswered(Error::new(
                    ErrorKind::Ambiguous,
                    format!("the server gave no answer within {patience:?}"),
                )))
            });
        if let Err(failure) = &answer
            && failure.is_of_the_agent()
        {
            self.next(current.generation);
        }
        answer
    }

    async fn send(&self, call: &Call, endpoint: &str) -> Result<Answer, Failure> {
        let mut uri = format!("{endpoint}{}", call.path);
        if let Some(datacenter) = &self.datacenter {
            let joint = if call.path.contains('?') { '&' } else { '?' };
            uri = format!("{uri}{joint}dc={datacenter}");
        }
        let mut request = Request::builder().method(call.method.clone()).uri(uri);
        if let Some(token) = &self.token {
            request = request.header("X-Consul-Token", token);
        }
        let request = request
            .body(Full::new(call.body.clone()))
            .map_err(|error| {
                Failure::Refused(
                    Error::new(ErrorKind::Bug, "a request that can't be one").because(error),
                )
            })?;
        let (head, body) = self
            .http
            .request(request)
            .await
            .map_err(|error| error::broken(&error))?
            .into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| {
                Failure::Unanswered(
                    Error::new(ErrorKind::Ambiguous, "the answer broke off").because(error),
                )
            })?
            .to_bytes();
        let index = head.headers.get("X-Consul-Index");
        let answer = Answer {
            status: head.status,
            index: index
                .and_then(|index| index.to_str().ok()?.parse().ok())
                .unwrap_or(0),
            body,
        };
        match head.status {
            StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(answer),
            status => Err(error::failure(status, &answer.body)),
        }
    }

    /// Goes on to the next agent, unless that was done already.
    fn next(&self, generation: u64) {
        let mut current = self.lock();
        if current.generation == generation {
            current.at = (current.at + 1) % self.agents();
            current.generation += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("agent", &self.lock().at)
            .finish_non_exhaustive()
    }
}
