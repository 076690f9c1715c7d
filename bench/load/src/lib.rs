//! One lock library under load, driven line by line.
//!
//! A worker is a process with one connection. It says `ready`, reads a request per line and answers with a line of
//! numbers, all times in nanoseconds of `CLOCK_MONOTONIC`, which is the same in every process and language:
//!
//! ```text
//! pairs NAMES MS                           -> ELAPSED LATENCY LATENCY …
//! contend FIRST COUNT HOLD_MS THINK_MS MS REST_MS
//!                                          -> WHO REQUESTED GRANTED RELEASING, again and again
//! ```
//!
//! Who waits when the time is over waits on, for the rest at most: a wait that is cut short there counts as a grant at
//! that moment.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock;
use tokio::io::{AsyncBufReadExt, BufReader};

/// What may go wrong, as text.
pub type Result<T> = std::result::Result<T, String>;

/// How long a lock lasts without renewal, the same for everyone.
pub const TTL: Duration = Duration::from_secs(30);

/// A lock library.
pub trait Subject: Send + Sync + 'static {
    /// A lock that is held.
    type Hold: Send;

    /// Takes the lock, waiting for it as the library does.
    fn acquire(&self, name: &str) -> impl Future<Output = Result<Self::Hold>> + Send;

    /// Gives it back.
    fn release(&self, hold: Self::Hold) -> impl Future<Output = Result<()>> + Send;
}

/// Serves requests until there are no more.
///
/// # Errors
/// What the library says; the first failure ends the worker.
pub async fn serve(subject: impl Subject) -> Result<()> {
    let subject = Arc::new(subject);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    answer("ready")?;
    while let Some(line) = lines.next_line().await.map_err(text)? {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let numbers = match (verb, &numbers[..]) {
            ("pairs", &[names, millis]) => pairs(&subject, names, millis).await?,
            ("contend", &[first, count, hold, think, millis, rest]) => {
                let pace = Pace {
                    hold: Duration::from_millis(hold),
                    think: Duration::from_millis(think),
                    millis,
                    rest,
                };
                contend(&subject, first, count, pace).await?
            }
            _ => return Err(format!("no such request: {line}")),
        };
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        answer(&words.join(" "))?;
    }
    Ok(())
}

/// Takes and gives back locks nobody else wants, each name by a task of its own.
async fn pairs(subject: &Arc<impl Subject>, names: u64, millis: u64) -> Result<Vec<u64>> {
    let begun = now();
    let end = begun + millis * 1_000_000;
    let tasks: Vec<_> = (0..names)
        .map(|at| {
            let subject = subject.clone();
            tokio::spawn(async move {
                let name = format!("bench/pair/{at}");
                let mut latencies = Vec::new();
                loop {
                    let asked = now();
                    if asked >= end {
                        return Ok::<_, String>(latencies);
                    }
                    let hold = subject.acquire(&name).await?;
                    subject.release(hold).await?;
                    latencies.push(now() - asked);
                }
            })
        })
        .collect();
    let mut numbers = vec![0];
    for task in tasks {
        numbers.extend(task.await.map_err(text)??);
    }
    numbers[0] = now() - begun;
    Ok(numbers)
}

/// How contenders of one lock behave.
#[derive(Clone, Copy)]
struct Pace {
    hold: Duration,
    think: Duration,
    millis: u64,
    rest: u64,
}

/// Wants one lock `count` times at once.
async fn contend(
    subject: &Arc<impl Subject>,
    first: u64,
    count: u64,
    pace: Pace,
) -> Result<Vec<u64>> {
    let end = now() + pace.millis * 1_000_000;
    let over = end + pace.rest * 1_000_000;
    let tasks: Vec<_> = (first..first + count)
        .map(|who| {
            let subject = subject.clone();
            tokio::spawn(async move {
                let mut events = Vec::new();
                loop {
                    let requested = now();
                    if requested >= end {
                        return Ok::<_, String>(events);
                    }
                    let left = Duration::from_nanos(over.saturating_sub(requested));
                    let acquired = tokio::time::timeout(left, subject.acquire("bench/contended"));
                    let Ok(hold) = acquired.await else {
                        let now = now();
                        events.extend([who, requested, now, now]);
                        return Ok(events);
                    };
                    let hold = hold?;
                    let granted = now();
                    pause(pace.hold).await;
                    let releasing = now();
                    subject.release(hold).await?;
                    events.extend([who, requested, granted, releasing]);
                    pause(pace.think).await;
                }
            })
        })
        .collect();
    let mut events = Vec::new();
    for task in tasks {
        events.extend(task.await.map_err(text)??);
    }
    Ok(events)
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

/// Now, by the clock that all workers share.
#[must_use]
pub fn now() -> u64 {
    clock::now().monotonic
}

fn answer(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(text)
}

/// An error as text.
pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
