//! One lock that nobody else wants: how long taking and giving back takes.

use leasehold_bench_load::Result;

use crate::Plan;
use crate::peers::Entry;
use crate::server::Server;
use crate::stats::{median, quantile};
use crate::worker::Worker;

/// How many names at once in the second half.
const NAMES: u64 = 64;

/// What one library reached in one round.
#[derive(Default)]
struct Round {
    latencies: Vec<f64>,
    seconds: f64,
}

impl Round {
    fn add(&mut self, answer: &[u64]) {
        if let Some((elapsed, latencies)) = answer.split_first() {
            self.seconds += *elapsed as f64 / 1e9;
            self.latencies
                .extend(latencies.iter().map(|latency| *latency as f64 / 1e3));
        }
    }

    fn micros(&self, part: f64) -> f64 {
        quantile(&self.latencies, part)
    }

    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

pub(crate) fn table(plan: &Plan, server: &Server, entries: &[&Entry]) -> Result<String> {
    let present: Vec<&&Entry> = entries
        .iter()
        .filter(|entry| entry.missing().is_none())
        .collect();
    let mut workers = Vec::new();
    for entry in &present {
        workers.push(entry.worker(&server.url())?);
    }
    // Scripts are loaded and rows are there before anything counts.
    run(&mut workers, 1, plan)?;
    let mut single = Vec::new();
    let mut many = Vec::new();
    for _ in 0..plan.rounds() {
        single.push(run(&mut workers, 1, plan)?);
        many.push(run(&mut workers, NAMES, plan)?);
    }

    let mut table = String::from(
        "| library | p50 µs | p99 µs | pairs/s | p50 × raw | pairs/s, 64 names | × raw |\n|---|---|---|---|---|---|---|\n",
    );
    for (at, entry) in present.iter().enumerate() {
        let middle = |rounds: &[Vec<Round>], value: &dyn Fn(&[Round]) -> f64| {
            median(&rounds.iter().map(|round| value(round)).collect::<Vec<_>>())
        };
        table += &format!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} |\n",
            entry.name,
            middle(&single, &|round| round[at].micros(0.5)),
            middle(&single, &|round| round[at].micros(0.99)),
            middle(&single, &|round| round[at].rate()),
            middle(&single, &|round| round[at].micros(0.5)
                / round[1].micros(0.5)),
            middle(&many, &|round| round[at].rate()),
            middle(&many, &|round| round[at].rate() / round[1].rate()),
        );
    }
    for entry in entries {
        if let Some(why) = entry.missing() {
            table += &format!("| {} | {why} | | | | | |\n", entry.name);
        }
    }
    Ok(table)
}

/// One round: short slices, everyone in turn, so that a noisy moment of the machine is everyone's.
fn run(workers: &mut [Worker], names: u64, plan: &Plan) -> Result<Vec<Round>> {
    let (slices, millis) = if plan.quick { (3, 100) } else { (10, 200) };
    let mut rounds: Vec<Round> = workers.iter().map(|_| Round::default()).collect();
    for _ in 0..slices {
        for (worker, round) in workers.iter_mut().zip(&mut rounds) {
            worker.send(&format!("pairs {names} {millis}"))?;
            round.add(&worker.answer()?);
        }
    }
    Ok(rounds)
}
