//! A connection to one member at a time, and to another when that fails.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use http::uri::PathAndQuery;
use leasehold_core::{Error, ErrorKind, Result};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};
use tonic_prost::ProstCodec;

use crate::beat::Witness;
use crate::config::{Config, Login};
use crate::error::{self, Failure};
use crate::wire::{
    Answer, AuthenticateRequest, Header, LeaseKeepAliveRequest, LeaseKeepAliveResponse, Request,
    WatchRequest, WatchResponse,
};

/// The largest answer that is taken: a lease with a hundred thousand keys.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What all links of a client share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// The cluster that answered first; no other is believed.
    cluster: OnceLock<u64>,
    /// Stands for user and password.
    token: Mutex<Option<AsciiMetadataValue>>,
}

/// A connection; it lives on the runtime of whoever made it last.
pub(crate) struct Link {
    endpoints: Vec<Endpoint>,
    login: Option<Login>,
    common: Arc<Common>,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// Which member.
    at: usize,
    channel: Option<Channel>,
    generation: u64,
    /// The member that answered last, and its term then.
    witness: Option<Witness>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Connects on first use.
    pub(crate) fn new(config: &Config, common: Arc<Common>) -> Self {
        Self {
            endpoints: config.endpoints.clone(),
            login: config.login.clone(),
            common,
            current: Mutex::default(),
        }
    }

    /// A link to the member at this place alone.
    pub(crate) fn to_member(config: &Config, at: usize) -> Self {
        Self {
            endpoints: vec![config.endpoints[at].clone()],
            login: config.login.clone(),
            // Its cluster is what is to be found out.
            common: Arc::default(),
            current: Mutex::default(),
        }
    }

    /// How many members there are to turn to.
    pub(crate) fn members(&self) -> usize {
        self.endpoints.len()
    }

    /// The member that answered last, and its term then.
    pub(crate) fn witness(&self) -> Option<Witness> {
        lock(&self.current).witness
    }

    /// Sends a request to one member, or to the next ones where nothing could be sent.
    pub(crate) async fn call<R: Request>(
        &self,
        request: R,
        patience: Duration,
    ) -> Result<R::Answer, Failure> {
        let mut tried = 1;
        let mut renewed = false;
        loop {
            match self.once(&request, patience).await {
                // Also a single one: the runtime that drove the connection may have ended.
                Err(Failure::Unsent(_)) if tried < self.members().max(2) => tried += 1,
                Err(Failure::TokenGone(_)) if !renewed => renewed = true,
                outcome => return outcome,
            }
        }
    }

    /// As [`call`](Self::call), for a request that may as well be processed twice: tries every member.
    pub(crate) async fn ask<R: Request>(
        &self,
        request: R,
        patience: Duration,
    ) -> Result<R::Answer, Failure> {
        let mut tried = 1;
        loop {
            match self.call(request.clone(), patience).await {
                Err(Failure::Unanswered(_)) if tried < self.members() => tried += 1,
                outcome => return outcome,
            }
        }
    }

    /// Keeps a lease alive, once.
    pub(crate) async fn keep_alive(
        &self,
        id: i64,
        patience: Duration,
    ) -> Result<LeaseKeepAliveResponse, Failure> {
        let request = LeaseKeepAliveRequest { id };
        self.one(patience, async |link: &Self, channel| {
            let request =
                tonic::Request::from_parts(link.metadata().await?, Default::default(), request);
            let mut grpc = ready(channel).await?;
            let answers = grpc
                .server_streaming(
                    request,
                    path::<LeaseKeepAliveRequest>(),
                    codec::<_, LeaseKeepAliveResponse>(),
                )
                .await
                .map_err(|status| error::failure(&status))?;
            let mut answers = answers.into_inner();
            match answers.message().await {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(Failure::Unanswered(error::unexpected("the lease"))),
                Err(status) => Err(error::failure(&status)),
            }
        })
        .await
    }

    /// Opens the stream of watches; `orders` is what goes to the server.
    pub(crate) async fn watch(
        &self,
        orders: impl Stream<Item = WatchRequest> + Send + 'static,
        patience: Duration,
    ) -> Result<Streaming<WatchResponse>, Failure> {
        let (channel, generation) = self.channel();
        let opened = tokio::time::timeout(patience, async {
            let request =
                tonic::Request::from_parts(self.metadata().await?, Default::default(), orders);
            let mut grpc = ready(channel).await?;
            grpc.streaming(request, path::<WatchRequest>(), codec())
                .await
                .map(tonic::Response::into_inner)
                .map_err(|status| error::failure(&status))
        })
        .await;
        let opened = opened.unwrap_or_else(|_| Err(late(patience)));
        if let Err(failure) = &opened {
            self.failed(failure, generation);
        }
        opened
    }

    /// Checks an answer that came by a stream.
    pub(crate) fn believe(&self, header: Option<Header>) -> Result<Header, Failure> {
        let header = header.ok_or_else(|| Failure::Refused(error::unexpected("a header")))?;
        let known = *self.common.cluster.get_or_init(|| header.cluster_id);
        if known == header.cluster_id {
            return Ok(header);
        }
        // Unsupported, because no later try can succeed with this client.
        Err(Failure::Refused(Error::new(
            ErrorKind::Unsupported,
            format!(
                "another cluster answers than before (id {:x}, was {known:x}): it was restored or made anew, and its \
                 revision, so the fencing token, may have gone back; look after the resources, then start again",
                header.cluster_id
            ),
        )))
    }

    /// Another member for what comes, unless one was chosen already.
    pub(crate) fn turn_away(&self) {
        let generation = lock(&self.current).generation;
        self.next(generation);
    }

    /// Lets go of the connection.
    pub(crate) fn close(&self) {
        lock(&self.current).channel = None;
    }

    async fn once<R: Request>(
        &self,
        request: &R,
        patience: Duration,
    ) -> Result<R::Answer, Failure> {
        self.one(patience, async |link: &Self, channel| {
            let metadata = link.metadata().await?;
            link.unary(channel, metadata, request.clone()).await
        })
        .await
    }

    /// One request to the current member.
    async fn one<A: Answer>(
        &self,
        patience: Duration,
        request: impl AsyncFnOnce(&Self, Channel) -> Result<A, Failure>,
    ) -> Result<A, Failure> {
        let (channel, generation) = self.channel();
        let answer = tokio::time::timeout(patience, request(self, channel))
            .await
            .unwrap_or_else(|_| Err(late(patience)));
        let answer = answer.and_then(|answer| {
            let header = self.believe(answer.header())?;
            lock(&self.current).witness = Some(Witness::of(&header));
            Ok(answer)
        });
        if let Err(failure) = &answer {
            self.failed(failure, generation);
        }
        answer
    }

    async fn unary<R: Request>(
        &self,
        channel: Channel,
        metadata: MetadataMap,
        request: R,
    ) -> Result<R::Answer, Failure> {
        let request = tonic::Request::from_parts(metadata, Default::default(), request);
        let mut grpc = ready(channel).await?;
        grpc.unary(request, path::<R>(), codec())
            .await
            .map(tonic::Response::into_inner)
            .map_err(|status| error::failure(&status))
    }

    fn failed(&self, failure: &Failure, generation: u64) {
        if failure.is_of_the_member() {
            self.next(generation);
        }
        if matches!(failure, Failure::TokenGone(_)) {
            *lock(&self.common.token) = None;
        }
    }

    /// Goes on to the next member, with a new connection also where it is the same.
    fn next(&self, generation: u64) {
        let mut current = lock(&self.current);
        if current.generation == generation {
            current.at = (current.at + 1) % self.members();
            current.generation += 1;
            current.channel = None;
        }
    }

    fn channel(&self) -> (Channel, u64) {
        let mut current = lock(&self.current);
        let at = current.at;
        let channel = current
            .channel
            .get_or_insert_with(|| self.endpoints[at].connect_lazy())
            .clone();
        (channel, current.generation)
    }

    /// What goes with every request: the token, and that a member without a leader is to say so at once.
    async fn metadata(&self) -> Result<MetadataMap, Failure> {
        let mut metadata = MetadataMap::new();
        metadata.insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(login) = &self.login {
            let known = lock(&self.common.token).clone();
            let token = match known {
                Some(token) => Some(token),
                None => self.authenticate(login).await?,
            };
            if let Some(token) = token {
                metadata.insert("token", token);
            }
        }
        Ok(metadata)
    }

    /// Gets a token; none where the cluster asks nobody for a password.
    async fn authenticate(&self, login: &Login) -> Result<Option<AsciiMetadataValue>, Failure> {
        let request = AuthenticateRequest {
            name: login.user.clone(),
            password: login.password.clone(),
        };
        let (channel, _) = self.channel();
        let mut grpc = ready(channel).await?;
        let answer = grpc
            .unary(
                tonic::Request::new(request),
                path::<AuthenticateRequest>(),
                codec::<_, <AuthenticateRequest as Request>::Answer>(),
            )
            .await;
        match answer {
            Ok(answer) => {
                let mut token: AsciiMetadataValue = answer
                    .into_inner()
                    .token
                    .parse()
                    .map_err(|_| Failure::Refused(error::unexpected("a token")))?;
                token.set_sensitive(true);
                *lock(&self.common.token) = Some(token.clone());
                Ok(Some(token))
            }
            Err(status)
                if status.code() == Code::FailedPrecondition
                    && status.message().contains("authentication is not enabled") =>
            {
                Ok(None)
            }
            // The request proper hasn't been sent.
            Err(status) => Err(match error::failure(&status) {
                Failure::Unanswered(error) => Failure::Unsent(error),
                failure => failure,
            }),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = lock(&self.current);
        f.debug_struct("Link")
            .field("member", &current.at)
            .field("connected", &current.channel.is_some())
            .finish_non_exhaustive()
    }
}

/// Waits for the connection; its runtime may be gone, and then nothing was sent.
async fn ready(channel: Channel) -> Result<tonic::client::Grpc<Channel>, Failure> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    match grpc.ready().await {
        Ok(()) => Ok(grpc),
        Err(error) => Err(Failure::Unsent(error::unreachable(&error.to_string()))),
    }
}

fn path<R: Request>() -> PathAndQuery {
    PathAndQuery::from_static(R::PATH)
}

fn codec<R, A>() -> ProstCodec<R, A> {
    ProstCodec::default()
}

fn late(patience: Duration) -> Failure {
    Failure::Unanswered(Error::new(
        ErrorKind::Ambiguous,
        format!("the server gave no answer within {patience:?}"),
    ))
}
