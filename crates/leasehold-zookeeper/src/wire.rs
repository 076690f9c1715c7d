//! ZooKeeper's messages: big-endian numbers, and texts and lists with their length before them.

/// The largest answer that is taken: a session with some hundred thousand nodes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What a request asks for, and the numbers of answers that nobody asked for.
pub(crate) const WATCH_EVENT: i32 = -1;
pub(crate) const PING: i32 = -2;
pub(crate) const AUTH: i32 = -4;

/// A request: its kind and what follows.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    op: i32,
    body: Vec<u8>,
}

/// How a node is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Ends with the session; the server appends a number to its name.
    EphemeralSequential = 3,
    /// The server deletes it a while after its last child.
    Container = 4,
}

/// Who may do what with a node that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acl {
    /// Everybody everything.
    Open,
    /// Its maker everything, nobody else anything.
    Maker,
}

impl Request {
    fn new(op: i32) -> Self {
        Self {
            op,
            body: Vec::new(),
        }
    }

    fn of_path(op: i32, path: &str) -> Self {
        let mut request = Self::new(op);
        put_bytes(&mut request.body, path.as_bytes());
        request
    }

    fn watched(op: i32, path: &str, watch: bool) -> Self {
        let mut request = Self::of_path(op, path);
        request.body.push(watch.into());
        request
    }

    /// Makes a node; answered by its path and what is known of it.
    pub(crate) fn create(path: &str, data: &[u8], kind: Kind, acl: Acl) -> Self {
        let mut request = Self::of_path(
            match kind {
                Kind::EphemeralSequential => 15,
                Kind::Container => 19,
            },
            path,
        );
        let body = &mut request.body;
        put_bytes(body, data);
        let (scheme, id) = match acl {
            Acl::Open => ("world", "anyone"),
            Acl::Maker => ("auth", ""),
        };
        // One entry with all rights.
        put(body, &[1, 31]);
        put_bytes(body, scheme.as_bytes());
        put_bytes(body, id.as_bytes());
        put(body, &[kind as i32]);
        request
    }

    pub(crate) fn delete(path: &str) -> Self {
        let mut request = Self::of_path(2, path);
        // Of any version.
        put(&mut request.body, &[-1]);
        request
    }

    /// Answered by what is known of a node; with `watch`, its end is told once.
    pub(crate) fn exists(path: &str, watch: bool) -> Self {
        Self::watched(3, path, watch)
    }

    /// Answered by a node's data and what is known of it; with `watch`, its end is told once.
    pub(crate) fn data(path: &str, watch: bool) -> Self {
        Self::watched(4, path, watch)
    }

    /// Answered by the names of a node's children.
    pub(crate) fn children(path: &str) -> Self {
        Self::watched(12, path, false)
    }

    /// Answered once the server has seen all that the leader had done.
    pub(crate) fn sync(path: &str) -> Self {
        Self::of_path(9, path)
    }

    /// The paths of this session's nodes that begin so.
    pub(crate) fn own(prefix: &str) -> Self {
        Self::of_path(103, prefix)
    }

    /// A transaction of no operations: a write without effect that the leader must have a majority agree to.
    pub(crate) fn nothing() -> Self {
        let mut request = Self::new(14);
        put(&mut request.body, &[-1]);
        request.body.push(1);
        put(&mut request.body, &[-1]);
        request
    }

    /// Ends the session.
    pub(crate) fn close() -> Self {
        Self::new(-11)
    }

    pub(crate) fn ping() -> Self {
        Self::new(11)
    }

    /// Says who the session's owner is, `user:password`.
    pub(crate) fn digest(login: &str) -> Self {
        let mut request = Self::new(100);
        put(&mut request.body, &[0]);
        put_bytes(&mut request.body, b"digest");
        put_bytes(&mut request.body, login.as_bytes());
        request
    }

    /// Appends the message to `out`.
    pub(crate) fn encode(&self, number: i32, out: &mut Vec<u8>) {
        frame(out, |out| {
            put(out, &[number, self.op]);
            out.extend(&self.body);
        });
    }
}

/// Asks for a session, or for one that there is.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

impl Connect {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        frame(&mut out, |out| {
            put(out, &[0]);
            // The newest change that was seen, of which a server that is behind it would refuse the session. What must
            // be new is asked for after a sync instead, and one that lost its memory is to say so.
            out.extend(0_i64.to_be_bytes());
            put(out, &[self.timeout_ms]);
            out.extend(self.session.to_be_bytes());
            put_bytes(out, &self.password);
            // A server without a leader is of no use.
            out.push(0);
        });
        out
    }
}

/// The answer to [`Connect`].
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    /// Zero where the session has ended.
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

impl Connected {
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        reader.int()?;
        Some(Self {
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.bytes()?.to_vec(),
        })
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The number of its request.
    pub(crate) number: i32,
    /// Zero, or why not.
    pub(crate) code: i32,
    body: Vec<u8>,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The change that made it.
    pub(crate) made: i64,
}

impl Answer {
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(Self {
            number: reader.int()?,
            code: {
                // The newest change there was.
                reader.long()?;
                reader.int()?
            },
            body: reader.0.to_vec(),
        })
    }

    /// What [`Request::create`] made.
    pub(crate) fn created(&self) -> Option<(String, Stat)> {
        let mut reader = Reader(&self.body);
        Some((reader.text()?, reader.stat()?))
    }

    /// What [`Request::exists`] asks for.
    pub(crate) fn stat(&self) -> Option<Stat> {
        Reader(&self.body).stat()
    }

    /// What [`Request::data`] asks for.
    pub(crate) fn data(&self) -> Option<(Vec<u8>, Stat)> {
        let mut reader = Reader(&self.body);
        Some((reader.bytes()?.to_vec(), reader.stat()?))
    }

    /// What [`Request::children`] and [`Request::own`] ask for.
    pub(crate) fn texts(&self) -> Option<Vec<String>> {
        let mut reader = Reader(&self.body);
        let count = reader.int()?;
        (0..count.max(0)).map(|_| reader.text()).collect()
    }

    /// The path that a watch tells of.
    pub(crate) fn watched(&self) -> Option<String> {
        let mut reader = Reader(&self.body);
        reader.int()?;
        reader.int()?;
        reader.text()
    }
}

/// How long the first message in `bytes` is, once that is known; none where it can't be a message.
pub(crate) fn length(bytes: &[u8]) -> Option<Option<usize>> {
    let Some(length) = Reader(bytes).int() else {
        return Some(None);
    };
    let length = usize::try_from(length).ok()?;
    (length <= ANSWER_BYTES_MAX).then_some(Some(length))
}

pub(crate) fn frame(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    put(out, &[0]);
    fill(out);
    let length = i32::try_from(out.len() - begin - 4).unwrap_or(i32::MAX);
    out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn put(out: &mut Vec<u8>, numbers: &[i32]) {
    for number in numbers {
        out.extend(number.to_be_bytes());
    }
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, &[i32::try_from(bytes.len()).unwrap_or(i32::MAX)]);
    out.extend(bytes);
}

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// None at all stands for empty.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        self.take(usize::try_from(length.max(0)).ok()?)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn stat(&mut self) -> Option<Stat> {
        let stat = Stat { made: self.long()? };
        // Its last change, times, versions, owner, sizes.
        self.take(60)?;
        Some(stat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a server of 3.8 answered.
    const CREATED: &[u8] =
        b"\0\0\0\x04\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x09/a/b-0000\0\0\0\0\0\0\0\x06";

    #[test]
    fn a_message_has_its_length_before_it() {
        let mut out = Vec::new();
        Request::sync("/a").encode(7, &mut out);
        assert_eq!(out, b"\0\0\0\x0e\0\0\0\x07\0\0\0\x09\0\0\0\x02/a");
        assert_eq!(length(&out), Some(Some(14)));
        assert_eq!(length(b"\0\0"), Some(None));
        // What another kind of server may say.
        assert_eq!(length(b"HTTP/1.1"), None);
        assert_eq!(length(b"\xff\xff\xff\xff"), None);
    }

    #[test]
    fn an_answer_is_read_and_a_short_one_is_none() {
        let mut bytes = CREATED.to_vec();
        bytes.extend([0; 60]);
        let answer = Answer::decode(&bytes).unwrap();
        assert_eq!((answer.number, answer.code), (4, 0));
        assert_eq!(
            answer.created(),
            Some(("/a/b-0000".into(), Stat { made: 6 }))
        );
        for cut in 0..bytes.len() {
            let short = Answer::decode(&bytes[..cut]).and_then(|answer| answer.created());
            assert_eq!(short, None, "{cut}");
        }
    }
}
