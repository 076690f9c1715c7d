//! Ways to write, beside each other: what a fence costs, or a record that it has happened. They have no peers.

use leasehold_bench_load::{Result, now, text};
use leasehold_testkit::servers::Mysql;
use mysql_async::{Conn, OptsBuilder};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use crate::stats::{median, quantile};
use crate::{Plan, report};

/// A way to write, over a connection of its own.
pub(crate) struct Way {
    name: &'static str,
    write: Box<dyn FnMut() -> Result<()>>,
}

impl Way {
    pub(crate) fn new(name: &'static str, write: impl FnMut() -> Result<()> + 'static) -> Self {
        Self {
            name,
            write: Box::new(write),
        }
    }
}

/// Where writes go, and how; the first way is the plain one.
pub(crate) struct Place {
    name: &'static str,
    ways: Vec<Way>,
    /// What lasts as long as it is measured.
    _kept: Box<dyn std::any::Any>,
}

impl Place {
    pub(crate) fn new(name: &'static str, ways: Vec<Way>, kept: impl std::any::Any) -> Self {
        Self {
            name,
            ways,
            _kept: Box::new(kept),
        }
    }
}

/// Opens a place, and its server.
pub(crate) type Open = fn(&Plan) -> Result<Place>;

/// Everything, as Markdown.
pub(crate) fn tables(plan: &Plan, plain: &str, places: &[Open]) -> Result<String> {
    let mut table =
        format!("| where | write | p50 µs | p99 µs | p50 × {plain} |\n|---|---|---|---|---|\n",);
    let machine = report::machine()?;
    for open in places {
        let mut place = open(plan)?;
        eprintln!("{}", place.name);
        let rows = rows(plan, &mut place)?;
        eprint!("{rows}");
        table += &rows;
    }
    Ok(format!("{machine}\n{table}"))
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
            .map(|(round, plain)| quantile(round, 0.5) / quantile(plain, 0.5))
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
pub(crate) fn runtime() -> Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().map_err(text)
}

/// A connection to the database `app` of a MySQL or MariaDB server.
pub(crate) fn mysql(server: &Mysql) -> Result<(Runtime, Conn)> {
    let address = server.address();
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("root"))
        .db_name(Some("app"))
        .prefer_socket(false);
    let runtime = runtime()?;
    let conn = runtime.block_on(Conn::new(options)).map_err(text)?;
    Ok((runtime, conn))
}

/// A connection to a Redis server.
pub(crate) fn redis(url: &str) -> Result<(Runtime, MultiplexedConnection)> {
    let client = redis::Client::open(url).map_err(text)?;
    let runtime = runtime()?;
    let connection = runtime.block_on(client.get_multiplexed_async_connection());
    Ok((runtime, connection.map_err(text)?))
}
