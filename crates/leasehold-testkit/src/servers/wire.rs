//! Just enough of the Redis protocol to set servers up.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Sends a command in words; answers its reply, of an array nothing but its first line. An error that the server
/// answers is one here.
pub(super) fn ask(address: SocketAddr, words: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("{words}\r\n").as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    if let Some(error) = line.strip_prefix('-') {
        return Err(io::Error::other(format!("{words}: {error}")));
    }
    let Some(length) = line.strip_prefix('$') else {
        return Ok(line.to_owned());
    };
    let length = length.parse().map_err(io::Error::other)?;
    let mut text = vec![0; length];
    reader.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Whether the reply holds all of these texts.
pub(super) fn says(address: SocketAddr, words: &str, texts: &[&str]) -> bool {
    ask(address, words).is_ok_and(|reply| texts.iter().all(|text| reply.contains(text)))
}
