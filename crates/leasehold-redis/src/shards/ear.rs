//! One node's messages.

use leasehold_core::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError, Value, cmd};
use tokio::sync::mpsc;

use super::Shared;
use crate::config::CONNECT;
use crate::dial::Node;
use crate::error;
use crate::link::Way;

/// How long a server may take to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// One connection's life; says what ended it.
pub(super) async fn listen(
    shared: &Shared,
    node: &Node,
    mut orders: mpsc::UnboundedReceiver<u16>,
) -> Error {
    let (sender, mut pushes) = mpsc::unbounded_channel();
    let mut connection = match connect(shared, node, sender).await {
        Ok(connection) => connection,
        Err(error) => return error,
    };
    let mut sharded = true;
    loop {
        tokio::select! {
            slot = orders.recv() => {
                let Some(slot) = slot else {
                    return Error::new(ErrorKind::Unavailable, "no more is to be heard here");
                };
                match subscribe(shared, &mut connection, slot, &mut sharded).await {
                    Ok(channel) => shared.on(slot, channel),
                    Err(error) => {
                        if let Some(Way::Moved(to)) = Way::of(&error)
                            && !to.host.is_empty()
                        {
                            shared.map.moved(slot, &to);
                        }
                        return error::connecting(error);
                    }
                }
            }
            push = pushes.recv() => match push {
                Some(push) => {
                    if let Some(error) = heard(shared, &push) {
                        return error;
                    }
                }
                None => return Error::new(ErrorKind::Unavailable, "the connection for messages broke"),
            }
        }
    }
}

async fn connect(
    shared: &Shared,
    node: &Node,
    sender: mpsc::UnboundedSender<PushInfo>,
) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        .set_response_timeout(Some(PATIENCE))
        .set_push_sender(sender);
    shared
        .map
        .dialer()
        .listener(node)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(error::connecting)
}

/// Subscribes to the slot's channel; answers which that is.
async fn subscribe(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    slot: u16,
    sharded: &mut bool,
) -> Result<String, RedisError> {
    if *sharded {
        let channel = shared.channel(slot);
        let answer: Result<Value, RedisError> = cmd("SSUBSCRIBE")
            .arg(&channel)
            .query_async(connection)
            .await;
        match answer {
            Err(error) if error.to_string().contains("unknown command") => *sharded = false,
            answer => return answer.map(|_| channel),
        }
    }
    let channel = shared.plain_channel();
    let answer: Result<Value, RedisError> =
        cmd("SUBSCRIBE").arg(&channel).query_async(connection).await;
    answer.map(|_| channel)
}

/// Takes in what a server says by itself; the error is what ends the connection's use.
fn heard(shared: &Shared, push: &PushInfo) -> Option<Error> {
    match push.kind {
        PushKind::SMessage | PushKind::Message => {
            if let Some(Value::BulkString(payload)) = push.data.last()
                && let Ok(payload) = std::str::from_utf8(payload)
            {
                shared.boxes.deliver(payload);
            }
            None
        }
        // Nobody unsubscribes here: the node has the slot no more.
        PushKind::SUnsubscribe => Some(Error::new(
            ErrorKind::Unavailable,
            "the lock's slot was moved",
        )),
        PushKind::Disconnection => Some(Error::new(
            ErrorKind::Unavailable,
            "the connection for messages broke",
        )),
        _ => None,
    }
}
