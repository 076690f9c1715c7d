//! One connection to one server.

use std::io;
use std::time::Duration;

use leasehold_core::{Address, Error, ErrorKind, Result, clock};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::unreachable;
use crate::config::Config;
use crate::wire::{self, Answer, Connect, Connected, Request};

/// How long the end of a session may take to be answered.
const FAREWELL: Duration = Duration::from_secs(2);

/// How much is read at once.
const CHUNK: usize = 8192;

/// A connection in the clear or not.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

pub(crate) type Stream = Box<dyn Transport>;

/// Connects to a server and asks it for the session.
pub(super) async fn reach(
    config: &Config,
    host: &Address,
    connect: &Connect,
) -> Result<(Stream, Connected)> {
    let mut stream = dial(config, host).await?;
    let answered = async {
        stream.write_all(&connect.encode()).await?;
        let mut length = [0; 4];
        stream.read_exact(&mut length).await?;
        let length = match wire::length(&length) {
            Some(Some(length)) => length,
            _ => return Err(io::Error::other("it doesn't speak as ZooKeeper does")),
        };
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    };
    let answer = answered.await.map_err(|error| {
        unreachable(&format!(
            "{host} ended the connection, as one does that has no leader, or as many connections of this host as it \
             takes (maxClientCnxns): {error}"
        ))
    })?;
    let connected = Connected::decode(&answer)
        .ok_or_else(|| unreachable(&format!("{host} doesn't speak as ZooKeeper does")))?;
    Ok((stream, connected))
}

/// Connects to a server, with TLS where the URL says so.
pub(crate) async fn dial(config: &Config, host: &Address) -> Result<Stream> {
    #[cfg(test)]
    if let Some(stream) = crate::simulation::dial(host) {
        return Ok(Box::new(stream));
    }
    let failed = |error: io::Error| unreachable(&format!("{host}: {error}"));
    let stream = TcpStream::connect((host.host.as_str(), host.port))
        .await
        .map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let Some(tls) = &config.tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.host.clone()).map_err(|error| {
        Error::new(
            ErrorKind::Invalid,
            format!("{host} can't be verified: {error}"),
        )
    })?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await;
    Ok(Box::new(stream.map_err(|error| {
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "{host} can't be trusted or doesn't trust us; name its CA with ?ca-file=…, the host as its \
                 certificate does, and a certificate of ours with ?client-cert-file=… where it asks for one"
            ),
        )
        .because(error)
    })?))
}

/// What goes in and out. Everything here may be dropped at any await without losing anything.
pub(super) struct Connection {
    stream: Stream,
    received: Vec<u8>,
    out: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// Some of what is written may not have gone out.
    unflushed: bool,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            out: Vec::new(),
            written: 0,
            unflushed: false,
        }
    }

    /// Where to put what is to go out.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends or receives something.
    pub(super) async fn work(&mut self) -> io::Result<()> {
        self.received.reserve(CHUNK);
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        let unwritten = &self.out[self.written..];
        self.unflushed |= !unwritten.is_empty();
        let send = async {
            match unwritten {
                [] => writer.flush().await.map(|()| 0),
                unwritten => writer.write(unwritten).await,
            }
        };
        // Biased, as all that runs in the simulation: a seed replays exactly.
        tokio::select! {
            biased;
            count = send, if self.unflushed => {
                match count? {
                    // Flushed: with TLS what was written may have waited here.
                    0 => self.unflushed = false,
                    count => self.written += count,
                }
                if self.written == self.out.len() {
                    self.out.clear();
                    self.written = 0;
                }
                Ok(())
            }
            count = reader.read_buf(&mut self.received) => match count? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            },
        }
    }

    /// The next answer that is here whole.
    pub(super) fn next(&mut self) -> io::Result<Option<Answer>> {
        let strange = || io::Error::other("it doesn't speak as ZooKeeper does");
        let Some(length) = wire::length(&self.received).ok_or_else(strange)? else {
            return Ok(None);
        };
        let end = 4 + length;
        if self.received.len() < end {
            return Ok(None);
        }
        let answer = Answer::decode(&self.received[4..end]).ok_or_else(strange)?;
        self.received.drain(..end);
        Ok(Some(answer))
    }

    /// Ends the session and waits for the server to have done so.
    pub(super) async fn farewell(&mut self) {
        Request::close().encode(0, &mut self.out);
        let ended = async {
            loop {
                self.work().await?;
                while let Some(answer) = self.next()? {
                    if answer.number == 0 {
                        return io::Result::Ok(());
                    }
                }
            }
        };
        // Else it ends by its timeout.
        let _ = clock::timeout(FAREWELL, ended).await;
    }
}
