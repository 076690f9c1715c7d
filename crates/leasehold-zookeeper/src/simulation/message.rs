//! The server's side of ZooKeeper's messages.

use super::tree::Node;
use crate::wire::{Reader, frame, put, put_bytes};

/// What a client asks.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// A session of this timeout in milliseconds; zero for a new one.
    Connect {
        timeout_ms: i32,
        session: i64,
    },
    Make {
        path: String,
        data: Vec<u8>,
        kind: i32,
    },
    Delete {
        path: String,
    },
    Exists {
        path: String,
        watch: bool,
    },
    Data {
        path: String,
        watch: bool,
    },
    Children {
        path: String,
    },
    Own {
        prefix: String,
    },
    Sync,
    Nothing,
    Ping,
    Close,
}

impl Ask {
    /// The first message of a connection.
    pub(super) fn connect(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        reader.int()?;
        reader.long()?;
        Some(Self::Connect {
            timeout_ms: reader.int()?,
            session: reader.long()?,
        })
    }

    /// A later one, with its number.
    pub(super) fn decode(bytes: &[u8]) -> Option<(i32, Self)> {
        let mut reader = Reader(bytes);
        let (number, op) = (reader.int()?, reader.int()?);
        let path = |reader: &mut Reader<'_>| reader.text();
        let watch = |reader: &Reader<'_>| reader.0.first() == Some(&1);
        let ask = match op {
            15 | 19 => Self::Make {
                path: path(&mut reader)?,
                data: reader.bytes()?.to_vec(),
                kind: i32::from_be_bytes(*reader.0.last_chunk()?),
            },
            2 => Self::Delete {
                path: path(&mut reader)?,
            },
            3 => Self::Exists {
                path: path(&mut reader)?,
                watch: watch(&reader),
            },
            4 => Self::Data {
                path: path(&mut reader)?,
                watch: watch(&reader),
            },
            12 => Self::Children {
                path: path(&mut reader)?,
            },
            9 => Self::Sync,
            103 => Self::Own {
                prefix: path(&mut reader)?,
            },
            14 => Self::Nothing,
            11 => Self::Ping,
            -11 => Self::Close,
            _ => return None,
        };
        Some((number, ask))
    }

    /// Whether a member answers it by what it knows itself.
    pub(super) fn is_local(&self) -> bool {
        matches!(
            self,
            Self::Exists { .. }
                | Self::Data { .. }
                | Self::Children { .. }
                | Self::Own { .. }
                | Self::Ping
        )
    }
}

/// What an answer has besides its number: a code, and what follows where that is zero.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) code: i32,
    body: Vec<u8>,
}

pub(super) const NO_NODE: i32 = -101;
pub(super) const SESSION_EXPIRED: i32 = -112;
pub(super) const SESSION_MOVED: i32 = -118;

impl Reply {
    pub(super) fn code(code: i32) -> Self {
        let body = Vec::new();
        Self { code, body }
    }

    pub(super) fn stat(node: &Node) -> Self {
        let mut reply = Self::code(0);
        reply.put_stat(node);
        reply
    }

    pub(super) fn data(node: &Node) -> Self {
        let mut reply = Self::code(0);
        put_bytes(&mut reply.body, &node.data);
        reply.put_stat(node);
        reply
    }

    pub(super) fn made(path: &str, node: &Node) -> Self {
        let mut reply = Self::code(0);
        put_bytes(&mut reply.body, path.as_bytes());
        reply.put_stat(node);
        reply
    }

    pub(super) fn texts(texts: &[String]) -> Self {
        let mut reply = Self::code(0);
        put(&mut reply.body, &[i32::try_from(texts.len()).unwrap()]);
        for text in texts {
            put_bytes(&mut reply.body, text.as_bytes());
        }
        reply
    }

    fn put_stat(&mut self, node: &Node) {
        self.body.extend(node.made.to_be_bytes());
        self.body.extend([0; 60]);
    }

    pub(super) fn encode(&self, number: i32) -> Vec<u8> {
        let mut out = Vec::new();
        frame(&mut out, |out| {
            put(out, &[number]);
            out.extend(0_i64.to_be_bytes());
            put(out, &[self.code]);
            out.extend(&self.body);
        });
        out
    }
}

/// The answer to a connection's first message; a timeout of zero says that the session has ended.
pub(super) fn connected(timeout_ms: i32, session: i64) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, |out| {
        put(out, &[0, timeout_ms]);
        out.extend(session.to_be_bytes());
        put_bytes(out, &[0; 16]);
    });
    out
}

/// Tells that a watched node has ended.
pub(super) fn ended(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    // Deleted; connected.
    put(&mut body, &[2, 3]);
    put_bytes(&mut body, path.as_bytes());
    Reply { code: 0, body }.encode(crate::wire::WATCH_EVENT)
}
