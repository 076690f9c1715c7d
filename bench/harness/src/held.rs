//! Many locks held by one process for one TTL and more: memory, renewals, processor time, and none lost.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::{Client, Guard, Release};
use leasehold_bench_load::{Result, TTL, now, text};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::Plan;
use crate::peers::Entry;
use crate::server::{REQUESTS, Server, Store, calls_between};
use crate::subjects;
use crate::worker::Worker;

/// How many acquisitions and releases are under way at once.
const AT_ONCE: usize = 64;
/// Clock ticks per second in /proc, the same on every Linux.
const TICKS: f64 = 100.0;

/// A worker that holds: `take COUNT` -> RSS before, `look` -> RSS now, ticks of processor time, how many are not
/// held; `release` -> how many were not ours any more. Memory in KiB.
pub(crate) async fn worker(client: Client) -> Result<()> {
    // What is made once per process comes first.
    release(take(&client, AT_ONCE).await?).await?;
    let mut guards = Vec::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    println!("ready");
    while let Some(line) = lines.next_line().await.map_err(text)? {
        match line.split_once(' ') {
            Some(("take", count)) => {
                let before = rss()?;
                guards = take(&client, count.parse().map_err(text)?).await?;
                println!("{before}");
            }
            _ if line == "look" => {
                let lost = guards.iter().filter(|guard| !guard.is_held()).count();
                println!("{} {} {lost}", rss()?, ticks()?);
            }
            _ => println!("{}", release(std::mem::take(&mut guards)).await?),
        }
    }
    Ok(())
}

async fn take(client: &Client, count: usize) -> Result<Vec<Guard>> {
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|first| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut guards = Vec::with_capacity(count / AT_ONCE + 1);
                for at in (first..count).step_by(AT_ONCE) {
                    let lock = client.lock(&format!("bench/held/{at:06}")).map_err(text)?;
                    guards.push(lock.ttl(TTL).acquire().await.map_err(text)?);
                }
                Ok::<_, String>(guards)
            })
        })
        .collect();
    let mut guards = Vec::with_capacity(count);
    for task in tasks {
        guards.extend(task.await.map_err(text)??);
    }
    Ok(guards)
}

/// Gives all back; how many were lost meanwhile, by what the store says.
async fn release(guards: Vec<Guard>) -> Result<usize> {
    let mut guards = guards.into_iter();
    let mut lost = 0;
    loop {
        let some: Vec<Guard> = guards.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return Ok(lost);
        }
        let tasks: Vec<_> = some
            .into_iter()
            .map(|guard| tokio::spawn(guard.release()))
            .collect();
        for task in tasks {
            if task.await.map_err(text)?.map_err(text)? != Release::Freed {
                lost += 1;
            }
        }
    }
}

fn rss() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(text)?;
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .ok_or_else(|| "no VmRSS in /proc/self/status".into())
}

fn ticks() -> Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(text)?;
    // The program's name comes before and may have spaces in it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = numbers.split_whitespace().skip(11).take(2);
    Ok(ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum())
}

pub(crate) fn table(plan: &Plan, server: &Server, _: &[&Entry]) -> Result<String> {
    let counts: &[u64] = match (server.store(), plan.quick) {
        (Store::Redis, false) => &[10_000, 100_000],
        _ => &[10_000],
    };
    // On the others a session is renewed for all its locks.
    let (renewed, line) = match server.store() {
        Store::Redis | Store::Redlock => ("renewals/s | peak | per request", "---|---|---"),
        _ => ("requests/s", "---"),
    };
    let mut table = format!(
        "| locks | taken/s | RSS MB | bytes per lock | {renewed} | processor, % of a core | lost |\n|---|---|---|---|{line}|---|---|\n",
    );
    for count in counts {
        table += &hold(plan, server, *count)?;
    }
    Ok(table)
}

fn hold(plan: &Plan, server: &Server, count: u64) -> Result<String> {
    let mut worker = Worker::start(subjects::command(&["hold", &server.url()])?)?;
    let begun = now();
    worker.send(&format!("take {count}"))?;
    let before = number(&worker.answer()?, 0)?;
    let taken = count as f64 * 1e9 / (now() - begun) as f64;

    worker.send("look")?;
    let first = worker.answer()?;
    let first_calls = server.calls()?;
    let seconds = if plan.quick { 12 } else { TTL.as_secs() + 5 };
    let begun = now();
    let mut peak = 0;
    let mut last = first_calls.clone();
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        let calls = server.calls()?;
        peak = peak.max(renewals(&last, &calls));
        last = calls;
    }
    let elapsed = (now() - begun) as f64 / 1e9;
    worker.send("look")?;
    let end = worker.answer()?;
    worker.send("release")?;
    let lost = number(&worker.answer()?, 0)?.max(number(&end, 2)?);

    let renewed = renewals(&first_calls, &last);
    let requests = calls_between(&first_calls, &last, "evalsha");
    let rss = number(&end, 0)?;
    let cpu = (number(&end, 1)? - number(&first, 1)?) as f64 / TICKS / elapsed;
    let counted = match server.store() {
        Store::Sqlite => "-".to_owned(),
        Store::Etcd | Store::ZooKeeper | Store::Consul | Store::Postgres | Store::Mysql => {
            let requests = calls_between(&first_calls, &last, REQUESTS);
            format!("{:.1}", requests as f64 / elapsed)
        }
        Store::Redis | Store::Redlock => format!(
            "{:.0} | {peak} | {:.0}",
            renewed as f64 / elapsed,
            renewed as f64 / requests.max(1) as f64
        ),
    };
    Ok(format!(
        "| {count} | {taken:.0} | {:.0} | {:.0} | {counted} | {:.1} | {lost} |\n",
        rss as f64 * 1024.0 / 1e6,
        (rss.saturating_sub(before) * 1024) as f64 / count as f64,
        cpu * 100.0,
    ))
}

/// Each renewed hold is one GET in the script, and nothing else asks meanwhile.
fn renewals(before: &HashMap<String, u64>, after: &HashMap<String, u64>) -> u64 {
    calls_between(before, after, "get")
}

fn number(numbers: &[u64], at: usize) -> Result<u64> {
    numbers
        .get(at)
        .copied()
        .ok_or_else(|| "a worker said too little".into())
}
