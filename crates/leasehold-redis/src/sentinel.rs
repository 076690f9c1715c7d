//! Sentinels: who the master is, and that it has changed
//! (<https://redis.io/docs/latest/develop/reference/sentinel-clients/>).
//!
//! One sentinel may be cut off and know an old master. So all are asked, half of them must answer where they can, and
//! the answer with the highest configuration epoch counts, which is how sentinels themselves settle it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};
use redis::{AsyncConnectionConfig, Client, RedisConnectionInfo};
use tokio::sync::{oneshot, watch};

use crate::dial::{Dialer, Node, invalid};
use crate::error;

/// The port of a sentinel that is named without one.
pub(crate) const PORT: u16 = 26_379;
/// The URL parameter with the master's name.
pub(crate) const MASTER: &str = "master";
/// The user that the sentinels know.
pub(crate) const USER: &str = "sentinel-user";
/// The file with its password.
pub(crate) const PASSWORD_FILE: &str = "sentinel-password-file";

/// How long a sentinel may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the rest of them may take once half have answered: in a failover one of them knows first.
const REST: Duration = Duration::from_millis(50);
/// How often they are asked though none of them told of a change: the one that is listened to may be cut off.
const LOOK: Duration = Duration::from_secs(30);

/// What a URL says of the sentinels besides where they are.
pub(crate) struct Named {
    master: String,
    user: Option<String>,
    password: Option<String>,
}

/// Takes the parameters out of the URL; `None` where it is of another topology.
pub(crate) fn named(url: &mut StoreUrl) -> Result<Option<Named>> {
    if !url.scheme().ends_with("+sentinel") {
        return Ok(None);
    }
    let master = url.take(MASTER).filter(|name| !name.is_empty());
    let (user, file) = (url.take(USER), url.take(PASSWORD_FILE));
    let Some(master) = master else {
        // It may be there under another name.
        url.finish(&[MASTER, USER, PASSWORD_FILE])?;
        return Err(invalid(
            "it needs the name that the sentinels know the master by, as in ?master=mymaster",
        ));
    };
    let password = match file {
        Some(file) => Some(password(&file)?),
        None if user.is_some() => {
            return Err(invalid(&format!("{USER} and {PASSWORD_FILE} go together")));
        }
        None => None,
    };
    Ok(Some(Named {
        master,
        user,
        password,
    }))
}

/// The file's first line.
fn password(file: &str) -> Result<String> {
    let fault = |what: &str| invalid(&format!("{PASSWORD_FILE}={file} {what}"));
    let text =
        std::fs::read_to_string(file).map_err(|error| fault(&format!("can't be read: {error}")))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(fault("begins with an empty line")),
    }
}

#[derive(Debug)]
pub(crate) struct Sentinels {
    sentinels: Vec<Client>,
    master: String,
    servers: Dialer,
    known: watch::Sender<Known>,
}

/// The newest master that was heard of.
#[derive(Clone, Debug, Default)]
struct Known {
    node: Option<Node>,
    /// The configuration epoch of that news.
    epoch: u64,
    /// Rises with every change of the node.
    era: u64,
}

/// What one sentinel answered.
enum Answer {
    Master(Node, u64),
    /// It has no such master.
    Unknown,
}

impl Sentinels {
    pub(crate) fn new(sentinels: &[Node], named: Named, servers: Dialer) -> Result<Self> {
        let mut settings = RedisConnectionInfo::default();
        if let Some(user) = named.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = named.password {
            settings = settings.set_password(password);
        }
        let dialer = Dialer {
            settings,
            ..servers.clone()
        };
        let sentinels: Result<Vec<Client>> =
            sentinels.iter().map(|node| dialer.node(node)).collect();
        Ok(Self {
            sentinels: sentinels?,
            master: named.master,
            servers,
            known: watch::Sender::new(Known::default()),
        })
    }

    /// Rises when another server becomes the master: what is connected to the one before must not stay so.
    pub(crate) fn era(&self) -> u64 {
        self.known.borrow().era
    }

    /// Waits for an era after this one.
    pub(crate) async fn after(&self, era: u64) {
        let mut known = self.known.subscribe();
        // It can't be closed while this is borrowed.
        let _ = known.wait_for(|known| known.era > era).await;
    }

    /// Asks who the master is.
    pub(crate) async fn master(&self) -> Result<(Node, Client, u64)> {
        let found = self.ask().await?;
        self.known.send_if_modified(|known| {
            // What a slower answer tells of before a failover is old.
            let newer = found.1 >= known.epoch && known.node.as_ref() != Some(&found.0);
            if newer {
                known.node = Some(found.0.clone());
                known.era += 1;
            }
            known.epoch = known.epoch.max(found.1);
            newer
        });
        let known = self.known.borrow().clone();
        let node = known.node.unwrap_or(found.0);
        let client = self.servers.node(&node)?;
        Ok((node, client, known.era))
    }

    /// The node that was named is no master: what the sentinels say next counts, even if they were set up anew and
    /// count their epochs from the beginning.
    pub(crate) fn doubt(&self) {
        self.known.send_if_modified(|known| {
            known.epoch = 0;
            false
        });
    }

    /// How many sentinels there are, and the master's name: for an operator.
    pub(crate) fn describe(&self) -> (usize, &str) {
        (self.sentinels.len(), &self.master)
    }

    async fn ask(&self) -> Result<(Node, u64)> {
        let mut answers: FuturesUnordered<_> =
            self.sentinels.iter().map(|one| self.ask_one(one)).collect();
        let enough = self.sentinels.len().div_ceil(2);
        let mut newest: Option<(Node, u64)> = None;
        let mut answered = 0;
        let mut failure = None;
        loop {
            let patience = if answered < enough {
                PATIENCE * 2
            } else {
                REST
            };
            let Ok(Some(answer)) = tokio::time::timeout(patience, answers.next()).await else {
                break;
            };
            match answer {
                Ok(Answer::Master(node, epoch)) => {
                    answered += 1;
                    if newest.as_ref().is_none_or(|(_, known)| *known < epoch) {
                        newest = Some((node, epoch));
                    }
                }
                Ok(Answer::Unknown) => {
                    failure.get_or_insert_with(|| {
                        Error::new(
                            ErrorKind::Invalid,
                            format!(
                                "the sentinels know no master \"{}\"; look at ?{MASTER}=…",
                                self.master
                            ),
                        )
                    });
                }
                // What keeps all of them from answering is told by any.
                Err(error) => failure = Some(error),
            }
        }
        newest.ok_or_else(|| {
            failure.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no sentinel answers"))
        })
    }

    async fn ask_one(&self, sentinel: &Client) -> Result<Answer> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let mut connection = sentinel
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(error::asking_sentinel)?;
        let mut question = redis::pipe();
        question.cmd("SENTINEL").arg("MASTER").arg(&self.master);
        // In a failover it tells the new address before the other does.
        question
            .cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master);
        let answer: redis::RedisResult<(HashMap<String, String>, (String, u16))> =
            question.query_async(&mut connection).await;
        match answer {
            Ok((fields, address)) => read(&fields, address)
                .ok_or_else(|| Error::new(ErrorKind::Bug, "a sentinel's answer has no epoch")),
            Err(error) if error.to_string().contains("No such master") => Ok(Answer::Unknown),
            Err(error) => Err(error::asking_sentinel(error)),
        }
    }

    /// Listens to a sentinel for news of another master, until told to stop.
    pub(crate) async fn watch(self: Arc<Self>, mut stopped: oneshot::Receiver<()>) {
        for sentinel in self.sentinels.iter().cycle() {
            tokio::select! {
                _ = &mut stopped => return,
                () = self.listen(sentinel) => {}
            }
            // Most are there, but if none is, they aren't asked in a busy loop.
            tokio::time::sleep(PATIENCE).await;
        }
    }

    /// Until this sentinel can't be listened to any more.
    async fn listen(&self, sentinel: &Client) {
        let subscribed = async {
            let mut news = sentinel.get_async_pubsub().await.ok()?;
            news.subscribe("+switch-master").await.ok()?;
            Some(news.into_on_message())
        };
        let Ok(Some(mut news)) = tokio::time::timeout(PATIENCE, subscribed).await else {
            return;
        };
        loop {
            // Whatever the news is of: also at first, for what happened before.
            if let Err(error) = self.master().await {
                tracing::debug!(%error, "the sentinels can't be asked");
            }
            if let Ok(None) = tokio::time::timeout(LOOK, news.next()).await {
                return;
            }
        }
    }
}

fn read(fields: &HashMap<String, String>, (host, port): (String, u16)) -> Option<Answer> {
    let epoch: u64 = fields.get("config-epoch")?.parse().ok()?;
    let settled = fields.get("ip") == Some(&host) && fields.get("port") == Some(&port.to_string());
    let node = Node {
        host: host.into(),
        port,
    };
    // What is about to be the master has the next epoch at least.
    Some(Answer::Master(
        node,
        if settled { epoch } else { epoch + 1 },
    ))
}
