//! The signals that are passed on to the job.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

const FORWARDED: [Signal; 6] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
];

/// The signals a user or a service manager sends to this process and means for the job.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// From here on they no longer end this process. One that was ignored when it began stays ignored, for
    /// the job too (`nohup`).
    ///
    /// # Errors
    /// When the system refuses; outside a runtime it panics.
    pub(crate) fn install() -> io::Result<Self> {
        let ignored = Ignored::read();
        let streams = FORWARDED
            .into_iter()
            .filter(|signal| !ignored.has(*signal))
            .map(|signal| Ok((signal, stream(signal)?)))
            .collect::<io::Result<_>>()?;
        Ok(Self { streams })
    }

    /// The number of the next one.
    ///
    /// # Cancel safety
    /// Safe: a signal that wasn't answered yet is answered by the next call.
    pub(crate) async fn next(&mut self) -> i32 {
        self.next_signal().await.as_raw()
    }

    pub(super) async fn next_signal(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The arrivals of one signal.
pub(super) fn stream(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// The news of children, also where whoever started us had it blocked: else neither the job's end nor the guardian's
/// would ever be noticed.
pub(super) fn children() -> io::Result<unix::Signal> {
    let mut children = SigSet::empty();
    children.add(nix::sys::signal::Signal::SIGCHLD);
    children.thread_unblock()?;
    stream(Signal::CHILD)
}

/// The signals that this process ignores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ignored(u64);

impl Ignored {
    pub(super) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::parse(&status)
    }

    fn parse(status: &str) -> Self {
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        Self(mask.unwrap_or(0))
    }

    pub(super) fn has(self, signal: Signal) -> bool {
        self.0 >> (signal.as_raw() - 1) & 1 == 1
    }
}

/// Does something with every signal blocked in this thread; a process started meanwhile begins like that.
pub(super) fn blocked<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let done = work();
    before.thread_set_mask()?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_mask() {
        // What `nohup` and a runtime that ignores PIPE make of it.
        let ignored = Ignored::parse("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n");
        assert!(ignored.has(Signal::HUP));
        assert!(ignored.has(Signal::PIPE));
        assert!(!ignored.has(Signal::INT));
        assert!(!ignored.has(Signal::TERM));
        assert!(!Ignored::parse("").has(Signal::HUP));
    }
}
