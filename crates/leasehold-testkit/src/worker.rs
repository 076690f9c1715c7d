//! A worker: the test executable started again, holding locks as it is told on its standard input.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Client, ErrorKind, Guard, Lock};
use tokio::sync::mpsc;

use crate::history;
use crate::protocol::{Crowd, CrowdHold, Event, Order, Wait};
use crate::tools::{below, boot, nanos, up_to};

/// Set in a worker's environment, to the URL of its store.
pub(crate) const MARKER: &str = "LEASEHOLD_TESTKIT_WORKER";

/// Runs as a worker until standard input ends.
pub(crate) fn main(url: &str) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (orders, mut inbox) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str::<Order>(&line) {
                Ok(order) => drop(orders.send(order)),
                Err(error) => fail(&error),
            }
        }
    });
    runtime.block_on(async {
        match leasehold::connect(url).await {
            Ok(client) => {
                say(&Event::Ready);
                serve(&client, &mut inbox).await;
            }
            Err(error) => fail(&error),
        }
    });
    Ok(())
}

/// Says something to the test, which may be gone.
fn say(event: &Event) {
    if let Ok(mut line) = serde_json::to_string(event) {
        line.push('\n');
        let mut out = std::io::stdout().lock();
        // In one write, so that a kill can't leave half a line before another's.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

fn fail(error: &dyn std::fmt::Display) {
    say(&Event::Failed {
        text: error.to_string(),
    });
}

async fn serve(client: &Client, inbox: &mut mpsc::UnboundedReceiver<Order>) {
    let (granted, mut grants) = mpsc::unbounded_channel::<(u64, Guard)>();
    let mut holds: HashMap<u64, Guard> = HashMap::new();
    loop {
        tokio::select! {
            Some((hold, guard)) = grants.recv() => {
                say(&Event::Granted { hold, token: guard.token().get() });
                tokio::spawn(tell_loss(hold, guard.held()));
                holds.insert(hold, guard);
            }
            order = inbox.recv() => match order {
                Some(Order::Acquire { hold, name, terms, wait }) => match terms.lock(client, &name) {
                    Ok(lock) => drop(tokio::spawn(acquire(hold, lock, wait, granted.clone()))),
                    Err(error) => fail(&error),
                },
                Some(Order::Crowd(crowd)) => drop(tokio::spawn(gather(client.clone(), crowd))),
                Some(Order::Close) => {
                    client.close().await;
                    say(&Event::Closed);
                }
                Some(order) => obey(order, &mut holds).await,
                None => return,
            },
        }
    }
}

async fn acquire(hold: u64, lock: Lock, wait: Wait, granted: mpsc::UnboundedSender<(u64, Guard)>) {
    match take(&lock, wait).await {
        Ok(Some(guard)) => drop(granted.send((hold, guard))),
        Ok(None) => say(&Event::Busy { hold }),
        Err(error) => fail(&error),
    }
}

async fn take(lock: &Lock, wait: Wait) -> leasehold::Result<Option<Guard>> {
    match wait {
        Wait::No => lock.try_acquire().await,
        Wait::AtMost(most) => lock.acquire_within(most).await,
        Wait::Forever => lock.acquire().await.map(Some),
    }
}

async fn tell_loss(hold: u64, held: leasehold::Held) {
    if let Some(reason) = held.lost().await {
        say(&Event::Lost {
            hold,
            reason: reason.as_str().to_owned(),
        });
    }
}

/// Orders that concern a hold.
async fn obey(order: Order, holds: &mut HashMap<u64, Guard>) {
    match order {
        Order::Release { hold } => match holds.remove(&hold) {
            Some(guard) => match guard.release().await {
                Ok(outcome) => say(&Event::Released {
                    hold,
                    outcome: outcome.as_str().to_owned(),
                }),
                Err(error) => fail(&error),
            },
            None => fail(&"released what is not held"),
        },
        Order::Drop { hold } => drop(holds.remove(&hold)),
        Order::Extend { hold, ttl } => match holds.get(&hold) {
            Some(guard) => say(&Event::Extended {
                hold,
                refused: match guard.extend(ttl).await {
                    Ok(()) => None,
                    Err(error) => Some(error.kind().as_str().to_owned()),
                },
            }),
            None => fail(&"extended what is not held"),
        },
        Order::Stare { hold } => match holds.get(&hold) {
            // Several, so that one of them is on a processor when the process is stopped.
            Some(guard) => {
                for _ in 0..3 {
                    let held = guard.held();
                    std::thread::spawn(move || stare(hold, &held));
                }
            }
            None => fail(&"stared at what is not held"),
        },
        Order::Acquire { .. } | Order::Crowd(_) | Order::Close => {}
    }
}

fn stare(hold: u64, held: &leasehold::Held) {
    let mut last = None;
    loop {
        let now = boot();
        // The answer first: what is left must not be asked before it.
        if !held.is_held() {
            let (held, until) = last.unwrap_or((0, 0));
            return say(&Event::Blinked {
                hold,
                held,
                until,
                gone: now,
            });
        }
        if last.is_none() {
            say(&Event::Staring { hold });
        }
        last = Some((now, now + nanos(held.remaining())));
    }
}

/// All tasks of a crowd.
async fn gather(client: Client, crowd: Crowd) {
    let crowd = Arc::new(crowd);
    let all = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..crowd.tasks {
        tasks.spawn(jostle(client.clone(), crowd.clone(), all.clone()));
    }
    while let Some(task) = tasks.join_next().await {
        match task {
            Ok(Ok(())) => {}
            Ok(Err(error)) => fail(&error),
            Err(error) => fail(&error),
        }
    }
    say(&Event::Dispersed);
}

/// One task of a crowd; `all` counts the holds of its process.
async fn jostle(client: Client, crowd: Arc<Crowd>, all: Arc<AtomicU32>) -> leasehold::Result<()> {
    let lock = crowd.terms.lock(&client, &crowd.name)?;
    let ends = boot() + nanos(crowd.lasts);
    let mut had = 0;
    let enough = || all.load(Ordering::Relaxed) >= crowd.at_least;
    while had < crowd.holds && !(boot() >= ends && enough()) {
        let wait = crowd.waits[below(crowd.waits.len() as u64) as usize];
        let called = boot();
        let guard = match take(&lock, wait).await {
            Ok(Some(guard)) => guard,
            // No answer in so short a wait is no grant either.
            Err(error) if !(error.is_retryable() && matches!(wait, Wait::AtMost(_))) => {
                return Err(error);
            }
            Ok(None) | Err(_) => {
                // A try in a busy loop would starve the holder's process.
                tokio::time::sleep(up_to(Duration::from_millis(3))).await;
                continue;
            }
        };
        say(&Event::Held(hold(&crowd, guard, called).await?));
        had += 1;
        all.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// One hold of a crowd, from its grant to its end.
async fn hold(crowd: &Crowd, guard: Guard, called: u64) -> leasehold::Result<CrowdHold> {
    let returned = boot();
    // Read in this order a sum is never later than the deadline that the guard counts.
    let mut deadline = returned + nanos(guard.remaining());
    if crowd.extends {
        match guard.extend(crowd.terms.ttl).await {
            // Lost before it was extended: it stopped to believe at its first deadline.
            Err(error) if error.kind() != ErrorKind::Lost => return Err(error),
            _ => {}
        }
        let now = boot();
        let rest = nanos(guard.remaining());
        if rest > 0 {
            deadline = deadline.max(now + rest);
        }
    }
    let mut record = history::Hold {
        token: guard.token().get(),
        called,
        returned,
        until: deadline,
    };
    let Some(most) = crowd.gives_back else {
        guard.lost().await;
        let told = boot();
        record.until = deadline.min(told);
        return Ok(CrowdHold {
            hold: record,
            told: Some(told),
            over: told,
        });
    };
    work(crowd, most).await;
    let still_held = guard.is_held();
    record.until = boot();
    guard.release().await?;
    Ok(CrowdHold {
        hold: record,
        told: (!still_held).then_some(record.until),
        over: boot(),
    })
}

/// What a crowd's holder does: nothing else may change the number between its two looks.
async fn work(crowd: &Crowd, most: Duration) {
    let before = crowd.counter.as_deref().map(read);
    tokio::time::sleep(up_to(most)).await;
    if let (Some(path), Some(before)) = (&crowd.counter, before)
        && let Err(error) = std::fs::write(path, (before + 1).to_string())
    {
        fail(&error);
    }
}

/// The number in the file; a file that is being written reads as one more lost update.
pub(crate) fn read(path: &Path) -> u64 {
    std::fs::read_to_string(path)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}
