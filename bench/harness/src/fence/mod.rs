//! What a write costs that is refused to older holders, beside the same write without a fence.

mod etcd;
mod file;
mod mysql;
mod postgres;
mod redis;
mod sqlite;

use leasehold_bench_load::{Result, now, text};
use leasehold_fence::{Checked, Mark};
use leasehold_testkit::servers::MysqlEdition;

use crate::server::{Server, Store};
use crate::stats::{median, quantile};
use crate::{Plan, report};

/// A way to write, over a connection of its own.
struct Way {
    name: &'static str,
    write: Box<dyn FnMut() -> Result<()>>,
}

impl Way {
    fn new(name: &'static str, write: impl FnMut() -> Result<()> + 'static) -> Self {
        Self {
            name,
            write: Box::new(write),
        }
    }
}

/// Where writes go, and how; the first way has no fence.
struct Place {
    name: &'static str,
    ways: Vec<Way>,
    /// What lasts as long as it is measured.
    _kept: Box<dyn std::any::Any>,
}

/// Everything, as Markdown.
pub(crate) fn tables(plan: &Plan) -> Result<String> {
    let mut table = String::from(
        "| resource | write | p50 µs | p99 µs | p50 × unguarded |\n|---|---|---|---|---|\n",
    );
    let machine = report::machine()?;
    for open in PLACES {
        let mut place = open(plan)?;
        eprintln!("fence: {}", place.name);
        let rows = rows(plan, &mut place)?;
        eprint!("{rows}");
        table += &rows;
    }
    Ok(format!("{machine}\n{table}"))
}

const PLACES: [fn(&Plan) -> Result<Place>; 7] = [
    |plan| {
        let folder = Server::start(Store::Sqlite, &plan.target)?;
        let Server::Sqlite(path) = &folder else {
            return Err("a folder is no server".into());
        };
        place("a file", file::ways(path.path())?, folder)
    },
    |plan| {
        let folder = Server::start(Store::Sqlite, &plan.target)?;
        place("SQLite", sqlite::ways(&folder.url())?, folder)
    },
    |plan| {
        let server = Server::start(Store::Postgres, &plan.target)?;
        place("PostgreSQL", postgres::ways(&server.url())?, server)
    },
    |_| mysql::place("MariaDB", MysqlEdition::MariaDb),
    |_| mysql::place("MySQL", MysqlEdition::MySql),
    |plan| {
        let server = Server::start(Store::Redis, &plan.target)?;
        place("Redis", redis::ways(&server.url())?, server)
    },
    |plan| {
        let server = Server::start(Store::Etcd, &plan.target)?;
        place("etcd", etcd::ways(&server.url())?, server)
    },
];

fn place(name: &'static str, ways: Vec<Way>, kept: impl std::any::Any) -> Result<Place> {
    Ok(Place {
        name,
        ways,
        _kept: Box::new(kept),
    })
}

/// What one way reached in each round.
type Rounds = Vec<Vec<f64>>;

fn rows(plan: &Plan, place: &mut Place) -> Result<String> {
    // What is made or learnt once is there before anything counts.
    round(plan, &mut place.ways)?;
    let mut reached: Vec<Rounds> = place.ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.rounds() {
        for (rounds, latencies) in reached.iter_mut().zip(round(plan, &mut place.ways)?) {
            rounds.push(latencies);
        }
    }
    let middle = |rounds: &Rounds, part| {
        let of_rounds: Vec<f64> = rounds.iter().map(|round| quantile(round, part)).collect();
        median(&of_rounds)
    };
    let mut rows = String::new();
    for (way, rounds) in place.ways.iter().zip(&reached) {
        let ratios: Vec<f64> = rounds
            .iter()
            .zip(&reached[0])
            .map(|(round, unguarded)| quantile(round, 0.5) / quantile(unguarded, 0.5))
            .collect();
        rows += &format!(
            "| {} | {} | {:.0} | {:.0} | {:.2} |\n",
            place.name,
            way.name,
            middle(rounds, 0.5),
            middle(rounds, 0.99),
            median(&ratios),
        );
    }
    Ok(rows)
}

/// One round: each way in turn, a write at a time, so that a noisy moment of the machine or its disk is everyone's. The
/// microseconds of each.
fn round(plan: &Plan, ways: &mut [Way]) -> Result<Rounds> {
    let nanos = if plan.quick {
        300_000_000
    } else {
        2_000_000_000
    };
    let mut latencies: Rounds = ways.iter().map(|_| Vec::new()).collect();
    let begun = now();
    while now() - begun < nanos * ways.len() as u64 {
        for (way, latencies) in ways.iter_mut().zip(&mut latencies) {
            let begun = now();
            (way.write)()?;
            latencies.push((now() - begun) as f64 / 1e3);
        }
    }
    Ok(latencies)
}

/// One thread for the connection and who writes.
fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().map_err(text)
}

/// The holder that writes all the time: one, as most often.
fn mark() -> Result<Mark> {
    "41".parse().map_err(text)
}

/// Nobody newer has been there.
fn accepted(checked: Checked) -> Result<()> {
    match checked {
        Checked::Accepted => Ok(()),
        Checked::Stale(stale) => Err(stale.to_string()),
    }
}
