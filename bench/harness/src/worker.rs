//! A worker process and the line protocol to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use leasehold_bench_load::{Result, text};

/// A process that drives one lock library over one connection; it ends when dropped.
pub(crate) struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts it and waits until it is connected.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{:?} can't be started: {error}", command.get_program()))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker has no pipes".into());
        };
        let mut worker = Self {
            child,
            requests: Some(requests),
            answers: BufReader::new(answers),
        };
        worker.expect("ready")?;
        Ok(worker)
    }

    pub(crate) fn send(&mut self, request: &str) -> Result<()> {
        let Some(requests) = &mut self.requests else {
            return Err("the worker is gone".into());
        };
        writeln!(requests, "{request}").map_err(text)
    }

    pub(crate) fn answer(&mut self) -> Result<Vec<u64>> {
        let line = self.line()?;
        line.split_ascii_whitespace()
            .map(|word| word.parse().map_err(|_| format!("a worker said: {line}")))
            .collect()
    }

    pub(crate) fn expect(&mut self, word: &str) -> Result<()> {
        match self.line()? {
            line if line == word => Ok(()),
            line => Err(format!("a worker said {line:?} instead of {word:?}")),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).map_err(text)? == 0 {
            return Err("a worker ended early; what it said is above".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its requests is its end.
        self.requests = None;
        let _ = self.child.wait();
    }
}
