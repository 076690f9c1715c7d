//! A connection to the server, which is a session of its own there.
//!
//! It lives on the keeper's thread, whoever asks through it, in a task that does what is asked in its order: an asker who
//! goes away changes nothing for the others. The server ends the session when it has heard nothing for so long.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::advisory::{self, Failure, Tried};
use leasehold_core::clock::{self, Moment};
use leasehold_core::{Claim, Error, ErrorKind, Name, Result, Token, background};
use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, Params, Row, Value};
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::error::{closed, failure, unexpected};
use crate::keys::lock_name;
use crate::note;
use crate::reach::Reached;
use crate::server::Edition;
use crate::sql;

/// How long one statement waits for a lock before it is sent anew: so a server that is gone without a word is noticed.
const WAIT: Duration = Duration::from_secs(60);
/// How much later than that the server may say that it has waited long enough.
const WAIT_SLACK: Duration = Duration::from_secs(5);
/// How long a closing connection may take to say so.
const GOODBYE: Duration = Duration::from_secs(1);

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To hold, and before that to wait: it ends when it was silent for so long.
    Hold(Duration),
    /// To look.
    Look,
}

impl Purpose {
    /// After how many seconds of silence it ends.
    pub(crate) fn silent(self) -> u64 {
        match self {
            Self::Hold(ttl) => whole(ttl).as_secs(),
            Self::Look => 60,
        }
    }

    /// How many seconds a statement may take that doesn't wait for a lock. While it runs, the session isn't silent.
    pub(crate) fn statement(self) -> u64 {
        match self {
            Self::Hold(_) => 1,
            Self::Look => 3,
        }
    }
}

/// A TTL as a session can have it: in whole seconds, and never shorter than its holds count on.
pub(crate) fn whole(ttl: Duration) -> Duration {
    let more = u64::from(ttl.subsec_nanos() > 0);
    Duration::from_secs(ttl.as_secs().saturating_add(more))
}

pub(crate) struct Link {
    orders: mpsc::UnboundedSender<Order>,
    /// When it is dropped, the connection is closed, whatever it is at.
    _kept: oneshot::Sender<()>,
    pub(crate) edition: Edition,
    /// The session's number.
    pub(crate) id: u64,
    /// When the server started, in its seconds: since then it remembers locks.
    pub(crate) start: i64,
    /// Whether it started so lately that holds from before may not be over.
    is_young: bool,
    /// When the last statement of its beginning was sent.
    pub(crate) since: Moment,
}

/// What the task is to do.
struct Order {
    text: Cow<'static, str>,
    params: Params,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// What the server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<Row>,
    /// How many rows it wrote; one that is written over counts twice.
    written: u64,
    /// The number that the statement was to remember.
    number: Option<u64>,
}

impl Link {
    /// Connects to the first of the servers that takes writes. `over` is called when the session has ended.
    ///
    /// # Cancel safety
    /// Safe: what was begun ends.
    pub(crate) async fn open(
        config: &Config,
        purpose: Purpose,
        over: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let reached = Reached::first(config, purpose).await?;
        let (orders, received) = mpsc::unbounded_channel();
        let (kept, dropped) = oneshot::channel();
        background::spawn_here(serve(reached.conn, received, dropped, over));
        Ok(Self {
            orders,
            _kept: kept,
            edition: reached.edition,
            id: reached.id,
            start: reached.start,
            is_young: reached.uptime <= crate::backend::TTL_MAX.as_secs().cast_signed() + 1,
            since: reached.since,
        })
    }

    /// Asks one thing. It is done also where nobody waits for the answer.
    pub(crate) fn ask<T: Into<Cow<'static, str>>, P: Into<Params>>(
        &self,
        text: T,
        params: P,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send + use<T, P> {
        let (answer, answered) = oneshot::channel();
        let order = Order {
            text: text.into(),
            params: params.into(),
            answer,
        };
        // Without a task the sender is dropped, which is what its end is known by.
        let _ = self.orders.send(order);
        async move { answered.await.unwrap_or_else(|_| Err(closed())) }
    }

    async fn granted(&self, text: String, claim: &Claim) -> Result<Tried, Failure> {
        let ttl = u64::try_from(claim.ttl.as_millis()).unwrap_or(u64::MAX);
        let name = claim.name.as_str();
        let params = named([
            ("name", name.into()),
            ("lock", lock_name(&claim.name).into()),
            ("start", self.start.into()),
            ("ttl", ttl.into()),
            ("note", note::text(&claim.identity).into()),
        ]);
        let answer = self.ask(text, params).await?;
        match (answer.written, answer.number) {
            (0, _) if self.is_young => self.kept_back(name).await,
            (0, _) => Ok(Tried::Busy),
            (1, _) => Ok(Tried::Granted(token(Some(1))?)),
            (_, number) => Ok(Tried::Granted(token(number)?)),
        }
    }

    /// Whether a name is kept back, or its lock somebody else's.
    async fn kept_back(&self, name: &str) -> Result<Tried, Failure> {
        let params = named([("name", name.into()), ("start", self.start.into())]);
        let answer = self.ask(sql::kept_back(), params).await?;
        Ok(match u64::try_from(first::<i64>(&answer)?) {
            Ok(left @ 1..) => Tried::HeldBack(Duration::from_millis(left)),
            _ => Tried::Busy,
        })
    }
}

#[async_trait]
impl advisory::Link for Link {
    fn is_closed(&self) -> bool {
        self.orders.is_closed()
    }

    async fn attempt(&self, _: &Name, claim: &Claim) -> Result<Tried, Failure> {
        self.granted(sql::attempt(), claim).await
    }

    async fn wait(self: Arc<Self>, lock: Name) -> Result<bool, Failure> {
        let wait = sql::wait(&lock_name(&lock), WAIT.as_secs());
        let answered = self.ask(self.edition.unbound(&wait), ());
        // Silence means that the server is gone: then the session is of no use any more.
        let answer = clock::timeout(WAIT + WAIT_SLACK, answered).await;
        let granted: Option<u64> = first(&answer.unwrap_or_else(|| Err(closed()))?)?;
        Ok(granted == Some(1))
    }

    async fn count(&self, _: &Name, claim: &Claim) -> Result<Tried, Failure> {
        self.granted(sql::count(), claim).await
    }

    async fn unlock(&self, lock: &Name) -> Result<bool, Failure> {
        let params = named([("lock", lock_name(lock).into())]);
        let had: Option<u64> = first(&self.ask(sql::UNLOCK, params).await?)?;
        Ok(had == Some(1))
    }

    async fn beat(&self) -> Result<(), Failure> {
        let id: u64 = first(&self.ask(sql::BEAT, ()).await?)?;
        if id == self.id {
            Ok(())
        } else {
            Err(Failure::Refused(proxied()))
        }
    }
}

fn token(number: Option<u64>) -> Result<Token> {
    number
        .and_then(Token::new)
        .ok_or_else(|| unexpected("the token"))
}

/// Does what is asked until the connection or its link is gone.
async fn serve(
    mut conn: Conn,
    mut orders: mpsc::UnboundedReceiver<Order>,
    mut dropped: oneshot::Receiver<()>,
    over: impl Fn(),
) {
    loop {
        let order = tokio::select! {
            biased;
            _ = &mut dropped => break,
            order = orders.recv() => order,
        };
        let Some(order) = order else { break };
        let answer = tokio::select! {
            biased;
            // What is dropped in the middle of a statement closes the connection.
            _ = &mut dropped => return over(),
            answer = answer(&mut conn, &order.text, order.params) => answer.map_err(failure),
        };
        let ends = matches!(answer, Err(Failure::Closed(_)));
        if ends {
            // Before anybody is told: who asks again at once is to find it closed.
            orders.close();
        }
        // Who asked may be gone.
        let _ = order.answer.send(answer);
        if ends {
            break;
        }
    }
    drop(orders);
    over();
    let _ = clock::timeout(GOODBYE, conn.disconnect()).await;
}

async fn answer(conn: &mut Conn, text: &str, params: Params) -> Result<Answer, mysql_async::Error> {
    // What has no parameters goes as text: it is prepared nowhere, and shown to others as it stands.
    let rows = if params == Params::Empty {
        conn.query(text).await?
    } else {
        conn.exec(text, params).await?
    };
    Ok(Answer {
        rows,
        written: conn.affected_rows(),
        number: conn.last_insert_id(),
    })
}

/// Parameters by their names.
pub(crate) fn named<const N: usize>(params: [(&str, Value); N]) -> Params {
    Params::from(Vec::from(params))
}

/// A column of an answer.
pub(crate) fn get<T: FromValue>(row: &Row, at: usize) -> Result<T> {
    match row.get_opt(at) {
        Some(Ok(value)) => Ok(value),
        _ => Err(unexpected("a column")),
    }
}

/// The only column of an answer's only row.
pub(crate) fn first<T: FromValue>(answer: &Answer) -> Result<T> {
    let row = answer.rows.first();
    row.ok_or_else(|| unexpected("a row"))
        .and_then(|row| get(row, 0))
}

/// The error of a proxy.
pub(crate) fn proxied() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a proxy before the server has sessions of its own there, and a lock needs one that is nobody else's; name the \
         server itself",
    )
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_never_shorter_than_its_holds_count_on() {
        for (ttl, seconds) in [(1000, 1), (1001, 2), (1999, 2), (2000, 2), (30_000, 30)] {
            assert_eq!(whole(Duration::from_millis(ttl)).as_secs(), seconds);
        }
    }
}
