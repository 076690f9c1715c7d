//! A program of another make, held by its input and heard by its output.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// It runs until it is [ended](Self::end), or killed with this.
#[derive(Debug)]
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Program {
    /// Starts it.
    ///
    /// # Panics
    /// Where it can't be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (sender, lines) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Self {
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    /// The next line it prints; none where that takes longer.
    #[must_use]
    pub fn line_within(&self, most: Duration) -> Option<String> {
        self.lines.recv_timeout(most).ok()
    }

    /// Writes a line to its input.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn tell(&mut self, line: &str) {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        assert!(matches!(told, Some(Ok(()))), "it takes no input: {told:?}");
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    /// Ends its input, after which it is to end by itself, and waits for that; whether it ended well.
    pub fn end(&mut self) -> bool {
        self.end_input();
        self.child.wait().is_ok_and(|status| status.success())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
