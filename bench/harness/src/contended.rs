//! One lock that many want, from eight processes: who gets it, how fast, and at what price.

use leasehold_bench_load::Result;

use crate::Plan;
use crate::peers::{Entry, Kind};
use crate::server::{REQUESTS, Server, Store, calls_between};
use crate::stats::{jain, median, quantile};
use crate::worker::Worker;

const PROCESSES: u64 = 8;
const LOCK: &str = "bench/contended";
const CONTENDERS: [u64; 3] = [8, 32, 128];

/// What is a request whoever calls it; other commands are also called by scripts.
const CALLS: [&str; 6] = [
    REQUESTS,
    "evalsha",
    "eval",
    "script|load",
    "subscribe",
    "ping",
];

/// Hold and think, in milliseconds.
#[derive(Clone, Copy)]
struct Pace {
    name: &'static str,
    hold: u64,
    think: u64,
}

const PACES: [Pace; 2] = [
    Pace {
        name: "back to back",
        hold: 0,
        think: 0,
    },
    Pace {
        name: "hold 5 ms, think 50 ms",
        hold: 5,
        think: 50,
    },
];

/// One acquisition, in milliseconds.
#[derive(Clone, Copy)]
struct Event {
    who: u64,
    requested: f64,
    granted: f64,
    releasing: f64,
}

/// What a round came to.
struct Outcome {
    rate: f64,
    others_rate: f64,
    /// From the call of a release to the grant of one who waited.
    hand_over: f64,
    wait_p99: f64,
    wait_most: f64,
    jain: f64,
    commands: f64,
}

pub(crate) fn table(plan: &Plan, server: &Server, entries: &[&Entry]) -> Result<String> {
    let mut tables = String::new();
    for pace in PACES {
        tables += &format!(
            "\n{}:\n\n| library | contenders | acquired/s | to another/s | hand-over p50 ms | wait p99 ms | longest wait ms | Jain | commands each |\n|---|---|---|---|---|---|---|---|---|\n",
            pace.name
        );
        for contenders in CONTENDERS {
            let rows: Vec<&&Entry> = entries
                .iter()
                .filter(|entry| entry.kind != Kind::Raw && entry.missing().is_none())
                .collect();
            let mut rounds: Vec<Vec<Outcome>> = rows.iter().map(|_| Vec::new()).collect();
            for _ in 0..plan.rounds() {
                for (entry, outcomes) in rows.iter().zip(&mut rounds) {
                    eprintln!("{}, {contenders} contenders: {}", pace.name, entry.name);
                    outcomes.push(round(plan, server, entry, contenders, pace)?);
                }
            }
            for (entry, outcomes) in rows.iter().zip(&rounds) {
                tables += &row(entry.name, contenders, outcomes, server.store());
            }
        }
    }
    Ok(tables.trim_start().to_owned())
}

fn row(name: &str, contenders: u64, outcomes: &[Outcome], store: Store) -> String {
    let middle =
        |value: fn(&Outcome) -> f64| median(&outcomes.iter().map(value).collect::<Vec<_>>());
    let commands = match store {
        Store::Sqlite => "-".to_owned(),
        _ => format!("{:.2}", middle(|outcome| outcome.commands)),
    };
    format!(
        "| {name} | {contenders} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} | {:.3} | {commands} |\n",
        middle(|outcome| outcome.rate),
        middle(|outcome| outcome.others_rate),
        middle(|outcome| outcome.hand_over),
        middle(|outcome| outcome.wait_p99),
        middle(|outcome| outcome.wait_most),
        middle(|outcome| outcome.jain),
    )
}

fn round(
    plan: &Plan,
    server: &Server,
    entry: &Entry,
    contenders: u64,
    pace: Pace,
) -> Result<Outcome> {
    let mut workers: Vec<Worker> = (0..PROCESSES)
        .map(|_| entry.worker(&server.url()))
        .collect::<Result<_>>()?;
    // Long enough for a dozen turns each, or fairness says only who was in time for one more. Some wait for minutes when
    // it is over: that is cut short.
    let (millis, rest) = if plan.quick {
        (1000, 2000)
    } else {
        (4000.max(100 * contenders), 5000)
    };
    // What is compiled while it runs is compiled, and sessions are there, before anything counts.
    contend(&mut workers, contenders, pace, millis / 4, 2000)?;
    leave(server, entry)?;
    let before = server.calls()?;
    let events = contend(&mut workers, contenders, pace, millis, rest)?;
    let after = server.calls()?;
    drop(workers);
    leave(server, entry)?;
    let own = if entry.sets { "set" } else { "" };
    let calls: u64 = CALLS
        .iter()
        .chain([&own])
        .map(|command| calls_between(&before, &after, command))
        .sum();
    Ok(judge(events, contenders, millis as f64, calls))
}

/// Whose wait was cut short may have got it all the same, and left it to its TTL.
fn leave(server: &Server, entry: &Entry) -> Result<()> {
    match entry.kind {
        Kind::Peer => server.remove(LOCK),
        Kind::Leasehold | Kind::Raw => Ok(()),
    }
}

/// Has all workers want the lock at once.
fn contend(
    workers: &mut [Worker],
    contenders: u64,
    pace: Pace,
    millis: u64,
    rest: u64,
) -> Result<Vec<Event>> {
    let each = contenders / PROCESSES;
    for (at, worker) in workers.iter_mut().enumerate() {
        let first = at as u64 * each;
        worker.send(&format!(
            "contend {first} {each} {} {} {millis} {rest}",
            pace.hold, pace.think
        ))?;
    }
    let mut events = Vec::new();
    for worker in workers {
        let numbers = worker.answer()?;
        events.extend(numbers.chunks_exact(4).map(|number| Event {
            who: number[0],
            requested: number[1] as f64 / 1e6,
            granted: number[2] as f64 / 1e6,
            releasing: number[3] as f64 / 1e6,
        }));
    }
    Ok(events)
}

fn judge(mut events: Vec<Event>, contenders: u64, millis: f64, calls: u64) -> Outcome {
    events.sort_by(|a, b| a.granted.total_cmp(&b.granted));
    let begun = events
        .iter()
        .map(|event| event.requested)
        .fold(f64::INFINITY, f64::min);
    // After the time is over they still wait, and fewer and fewer of them: that counts for waits alone.
    let within = events.partition_point(|event| event.granted < begun + millis);
    let mut shares = vec![0.0; usize::try_from(contenders).unwrap_or(0)];
    for event in &events[..within] {
        shares[event.who as usize] += 1.0;
    }
    let to_another: Vec<&[Event]> = events[..within]
        .windows(2)
        .filter(|two| two[0].who != two[1].who)
        .collect();
    let hand_overs: Vec<f64> = to_another
        .iter()
        .filter(|two| two[1].requested < two[0].releasing)
        .map(|two| two[1].granted - two[0].releasing)
        .collect();
    let waits: Vec<f64> = events
        .iter()
        .map(|event| event.granted - event.requested)
        .collect();
    let seconds = millis / 1e3;
    Outcome {
        rate: within as f64 / seconds,
        others_rate: to_another.len() as f64 / seconds,
        hand_over: median(&hand_overs),
        wait_p99: quantile(&waits, 0.99),
        wait_most: quantile(&waits, 1.0),
        jain: jain(&shares),
        commands: calls as f64 / events.len().max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(who: u64, requested: f64, granted: f64, releasing: f64) -> Event {
        Event {
            who,
            requested,
            granted,
            releasing,
        }
    }

    #[test]
    fn only_a_grant_to_another_who_waited_is_a_hand_over() {
        let events = vec![
            event(0, 0.0, 1.0, 2.0),
            event(0, 2.1, 2.2, 3.0),
            event(1, 0.0, 3.5, 4.0),
            event(0, 9.0, 9.1, 9.2),
            event(1, 9.1, 2000.0, 2001.0),
        ];
        let outcome = judge(events, 2, 1000.0, 10);
        assert_eq!(outcome.rate, 4.0);
        assert_eq!(outcome.others_rate, 2.0);
        assert_eq!(outcome.hand_over, 0.5);
        assert!(outcome.wait_most > 1990.0);
        assert_eq!(outcome.jain, 0.8);
        assert_eq!(outcome.commands, 2.0);
    }
}
