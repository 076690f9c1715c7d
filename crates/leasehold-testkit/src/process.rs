//! The test's side of a worker process.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::conformance::Outcome;
use crate::freezing::{self, Pid};
use crate::protocol::{Crowd, CrowdHold, Event, Order, Terms, Wait};
use crate::worker::MARKER;

/// How long a worker may take to answer, besides what the order itself takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker process. Killed when dropped.
pub(crate) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    events: mpsc::UnboundedReceiver<Event>,
    /// Events that came while another was waited for.
    early: VecDeque<Event>,
    holds: u64,
}

impl Worker {
    /// Starts a worker on the store at `url` and waits until it is connected.
    pub(crate) async fn start(url: &str) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(MARKER, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (said, events) = mpsc::unbounded_channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    // A line that is no event is one that a kill cut short.
                    if let Ok(event) = serde_json::from_str(&line) {
                        let _ = said.send(event);
                    }
                }
            });
        }
        let mut worker = Self {
            orders: child.stdin.take(),
            child,
            events,
            early: VecDeque::new(),
            holds: 0,
        };
        worker
            .hear(|event| matches!(event, Event::Ready).then_some(()))
            .await?;
        Ok(worker)
    }

    /// Gives an order.
    pub(crate) fn tell(&mut self, order: &Order) -> Outcome {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        let orders = self.orders.as_mut().ok_or("the worker has no input")?;
        orders.write_all(line.as_bytes())?;
        Ok(orders.flush()?)
    }

    /// Waits for the first event that `pick` takes; others are kept for later.
    pub(crate) async fn hear<T>(
        &mut self,
        mut pick: impl FnMut(&Event) -> Option<T>,
    ) -> Outcome<T> {
        for at in 0..self.early.len() {
            if let Some(picked) = pick(&self.early[at]) {
                self.early.remove(at);
                return Ok(picked);
            }
        }
        let listen = async {
            loop {
                match self.events.recv().await {
                    Some(Event::Failed { text }) => {
                        return Err(format!("in a worker: {text}").into());
                    }
                    Some(event) => match pick(&event) {
                        Some(picked) => return Ok(picked),
                        None => self.early.push_back(event),
                    },
                    None => return Err("the worker is gone".into()),
                }
            }
        };
        match tokio::time::timeout(PATIENCE, listen).await {
            Ok(heard) => heard,
            Err(_) => Err(format!("a worker said nothing for {PATIENCE:?}").into()),
        }
    }

    /// Starts an acquisition and answers the number of its hold.
    pub(crate) fn acquiring(&mut self, name: &str, terms: Terms, wait: Wait) -> Outcome<u64> {
        self.holds += 1;
        self.tell(&Order::Acquire {
            hold: self.holds,
            name: name.to_owned(),
            terms,
            wait,
        })?;
        Ok(self.holds)
    }

    /// The token of an acquisition that was started; `None` when it ended busy.
    pub(crate) async fn granted(&mut self, hold: u64) -> Outcome<Option<u64>> {
        self.hear(|event| match event {
            Event::Granted { hold: of, token } if *of == hold => Some(Some(*token)),
            Event::Busy { hold: of } if *of == hold => Some(None),
            _ => None,
        })
        .await
    }

    /// Takes a lock that is free: the number of the hold and its token.
    pub(crate) async fn take(&mut self, name: &str, terms: Terms) -> Outcome<(u64, u64)> {
        let hold = self.acquiring(name, terms, Wait::No)?;
        match self.granted(hold).await? {
            Some(token) => Ok((hold, token)),
            None => Err(format!("\"{name}\" was to be free and is busy").into()),
        }
    }

    /// Releases a hold and answers what came of it.
    pub(crate) async fn release(&mut self, hold: u64) -> Outcome<String> {
        self.tell(&Order::Release { hold })?;
        self.hear(|event| match event {
            Event::Released { hold: of, outcome } if *of == hold => Some(outcome.clone()),
            _ => None,
        })
        .await
    }

    /// Extends a hold; the kind of error where it was refused.
    pub(crate) async fn extend(&mut self, hold: u64, ttl: Duration) -> Outcome<Option<String>> {
        self.tell(&Order::Extend { hold, ttl })?;
        self.hear(|event| match event {
            Event::Extended { hold: of, refused } if *of == hold => Some(refused.clone()),
            _ => None,
        })
        .await
    }

    /// The reason a hold was lost for, once it is told.
    pub(crate) async fn lost(&mut self, hold: u64) -> Outcome<String> {
        self.hear(|event| match event {
            Event::Lost { hold: of, reason } if *of == hold => Some(reason.clone()),
            _ => None,
        })
        .await
    }

    /// The crowd's holds, once it is done.
    pub(crate) async fn dispersed(&mut self) -> Outcome<Vec<CrowdHold>> {
        let mut holds = Vec::new();
        self.hear(|event| match event {
            Event::Held(hold) => {
                holds.push(*hold);
                None
            }
            Event::Dispersed => Some(()),
            _ => None,
        })
        .await?;
        self.early.retain(|event| !matches!(event, Event::Held(_)));
        Ok(holds)
    }

    /// Stops the process where it is, as a debugger or a frozen container does.
    pub(crate) fn stop(&self) -> Outcome {
        Ok(freezing::freeze(Pid::from_child(&self.child))?)
    }

    /// Lets a stopped process go on.
    pub(crate) fn go_on(&self) -> Outcome {
        Ok(freezing::thaw(Pid::from_child(&self.child))?)
    }

    /// Kills the process and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Runs a crowd of `tasks` tasks in each of `processes` workers; their holds in the order they ended. Until the workers
/// are dropped they give back in the background what tries got that had ended without an answer.
pub(crate) async fn crowds(
    url: &str,
    processes: u32,
    crowd: &Crowd,
) -> Outcome<(Vec<CrowdHold>, Vec<Worker>)> {
    let mut workers = Vec::new();
    for _ in 0..processes {
        workers.push(Worker::start(url).await?);
    }
    for worker in &mut workers {
        worker.tell(&Order::Crowd(crowd.clone()))?;
    }
    let mut holds = Vec::new();
    for worker in &mut workers {
        let had = worker.dispersed().await?;
        assert!(!had.is_empty(), "a process got nothing");
        holds.extend(had);
    }
    holds.sort_unstable_by_key(|hold| hold.over);
    Ok((holds, workers))
}
