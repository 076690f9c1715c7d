//! A command under a lock, beside the bare command: what a shell pays.

use std::process::{Command, Stdio};

use leasehold_bench_load::{Result, now, text};

use crate::Plan;
use crate::peers::Entry;
use crate::raw_sqlite::Raw;
use crate::server::Server;
use crate::stats::{median, quantile};

/// One thing that is run again and again; answers how long it took in milliseconds.
type Run<'a> = Box<dyn Fn() -> Result<f64> + 'a>;

pub(crate) fn table(plan: &Plan, server: &Server, _: &[&Entry]) -> Result<String> {
    let runs = runs(plan, server);
    let times = if plan.quick { 20 } else { 100 };
    // Each run: its rounds, each the times it took.
    let mut rounds: Vec<Vec<Vec<f64>>> = runs.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.rounds() {
        let mut round: Vec<Vec<f64>> = runs.iter().map(|_| Vec::new()).collect();
        for _ in 0..times {
            for ((_, run), took) in runs.iter().zip(&mut round) {
                took.push(run()?);
            }
        }
        for (rounds, round) in rounds.iter_mut().zip(round) {
            rounds.push(round);
        }
    }
    let middle = |at: usize, part: f64| {
        let each: Vec<f64> = rounds[at]
            .iter()
            .map(|round| quantile(round, part))
            .collect();
        median(&each)
    };
    let mut table =
        String::from("| command | p50 ms | p99 ms | p50 over `true` ms |\n|---|---|---|---|\n");
    for (at, (name, _)) in runs.iter().enumerate() {
        table += &format!(
            "| {name} | {:.2} | {:.2} | {:.2} |\n",
            middle(at, 0.5),
            middle(at, 0.99),
            middle(at, 0.5) - middle(0, 0.5),
        );
    }
    Ok(table)
}

/// What is compared, the bare command first.
fn runs<'a>(plan: &Plan, server: &'a Server) -> Vec<(String, Run<'a>)> {
    let program = plan.target.join("release/leasehold");
    let file = plan.target.join("bench-flock");
    let store = server.store().name();
    let mut runs: Vec<(String, Run)> = vec![
        (
            "`true`".into(),
            Box::new(|| timed(&mut Command::new("true"))),
        ),
        (
            "`flock f true`".into(),
            Box::new(move || timed(Command::new("flock").arg(&file).arg("true"))),
        ),
        (
            format!("`leasehold run x -- true` on {store}"),
            Box::new(move || {
                timed(
                    Command::new(&program)
                        .args(["run", "x", "--", "true"])
                        .env("LEASEHOLD_STORE", server.url()),
                )
            }),
        ),
    ];
    if let Server::Etcd(etcd) = server {
        runs.push((
            "`etcdctl lock x true`".into(),
            Box::new(move || timed(etcd.control().map_err(text)?.args(["lock", "x", "true"]))),
        ));
    }
    if let Server::Sqlite(folder) = server {
        let path = folder.path().join("raw.db");
        runs.push((
            "raw rusqlite: open, two commits, close".into(),
            Box::new(move || {
                let begun = now();
                let raw = Raw::open(&path)?;
                raw.acquire("x")?;
                raw.release("x")?;
                drop(raw);
                Ok((now() - begun) as f64 / 1e6)
            }),
        ));
    }
    runs
}

fn timed(command: &mut Command) -> Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let begun = now();
    let status = command.status().map_err(text)?;
    let took = (now() - begun) as f64 / 1e6;
    if status.success() {
        Ok(took)
    } else {
        Err(format!("{:?} ended with {status}", command.get_program()))
    }
}
