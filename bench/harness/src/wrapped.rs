//! A command under a lock, beside the bare command: what a shell pays, alone and when eight want the same lock.

use std::process::{Child, Command, ExitStatus, Stdio};

use leasehold_bench_load::{Result, now, text};

use crate::Plan;
use crate::peers::Entry;
use crate::raw_sqlite::Raw;
use crate::server::Server;
use crate::stats::{median, quantile};

/// How many at once.
const CROWD: usize = 8;

/// One thing that is run again and again.
enum Run<'a> {
    Command(Box<dyn Fn() -> Result<Command> + 'a>),
    /// In this process; answers how long it took in milliseconds.
    Here(Box<dyn Fn() -> Result<f64> + 'a>),
}

impl Run<'_> {
    fn alone(&self) -> Result<f64> {
        match self {
            Self::Command(command) => timed(vec![command()?]),
            Self::Here(run) => run(),
        }
    }

    /// All of them until the last has ended.
    fn crowd(&self) -> Result<Option<f64>> {
        match self {
            Self::Command(command) => {
                let commands = (0..CROWD).map(|_| command()).collect::<Result<_>>()?;
                timed(commands).map(Some)
            }
            Self::Here(_) => Ok(None),
        }
    }
}

/// What a run took in one round after the other, each time.
#[derive(Default)]
struct Took(Vec<Vec<f64>>);

impl Took {
    fn middle(&self, part: f64) -> f64 {
        let each: Vec<f64> = self.0.iter().map(|round| quantile(round, part)).collect();
        median(&each)
    }

    fn longest(&self) -> f64 {
        quantile(&self.0.concat(), 1.0)
    }
}

pub(crate) fn table(plan: &Plan, server: &Server, _: &[&Entry]) -> Result<String> {
    let runs = runs(plan, server);
    let (times, crowds) = if plan.quick { (20, 3) } else { (100, 8) };
    let alone = rounds(plan, &runs, times, |run| run.alone().map(Some))?;
    let crowd = rounds(plan, &runs, crowds, |run| run.crowd())?;
    let mut table = format!(
        "| command | p50 ms | p99 ms | p50 over `true` ms | {CROWD} at once, until all are done: p50 ms | longest ms |\n|---|---|---|---|---|---|\n"
    );
    for (((name, run), alone_took), crowd) in runs.iter().zip(&alone).zip(&crowd) {
        let all = match run {
            Run::Command(_) => format!("{:.0} | {:.0}", crowd.middle(0.5), crowd.longest()),
            Run::Here(_) => "- | -".to_owned(),
        };
        table += &format!(
            "| {name} | {:.2} | {:.2} | {:.2} | {all} |\n",
            alone_took.middle(0.5),
            alone_took.middle(0.99),
            alone_took.middle(0.5) - alone[0].middle(0.5),
        );
    }
    Ok(table)
}

/// Everything in turn, again and again, so that a noisy moment is everyone's.
fn rounds(
    plan: &Plan,
    runs: &[(String, Run)],
    times: usize,
    one: impl Fn(&Run) -> Result<Option<f64>>,
) -> Result<Vec<Took>> {
    let mut took: Vec<Took> = runs.iter().map(|_| Took::default()).collect();
    for _ in 0..plan.rounds() {
        took.iter_mut().for_each(|took| took.0.push(Vec::new()));
        for _ in 0..times {
            for ((_, run), took) in runs.iter().zip(&mut took) {
                if let Some(round) = took.0.last_mut() {
                    round.extend(one(run)?);
                }
            }
        }
    }
    Ok(took)
}

/// What is compared, the bare command first.
fn runs<'a>(plan: &Plan, server: &'a Server) -> Vec<(String, Run<'a>)> {
    let program = plan.target.join("release/leasehold");
    let file = plan.target.join("bench-flock");
    let store = server.store().name();
    let mut runs = vec![
        command("`true`", || Ok(Command::new("true"))),
        command("`flock f true`", move || {
            let mut flock = Command::new("flock");
            flock.arg(&file).arg("true");
            Ok(flock)
        }),
        command(
            &format!("`leasehold run x -- true` on {store}"),
            move || {
                let mut leasehold = Command::new(&program);
                // It waits, as the others do anyhow.
                leasehold
                    .args(["run", "x", "--wait", "forever", "--", "true"])
                    .env("LEASEHOLD_STORE", server.url());
                Ok(leasehold)
            },
        ),
    ];
    match server {
        Server::Etcd(etcd) => runs.push(command("`etcdctl lock x true`", move || {
            let mut lock = etcd.control().map_err(text)?;
            lock.args(["lock", "x", "true"]);
            Ok(lock)
        })),
        Server::Consul(consul) => runs.push(command("`consul lock x true`", move || {
            let mut lock = consul.control(0).map_err(text)?;
            lock.args(["lock", "x", "true"]);
            Ok(lock)
        })),
        Server::Sqlite(folder) => {
            let path = folder.path().join("raw.db");
            let run = move || {
                let begun = now();
                let raw = Raw::open(&path)?;
                raw.acquire("x")?;
                raw.release("x")?;
                drop(raw);
                Ok((now() - begun) as f64 / 1e6)
            };
            runs.push((
                "raw rusqlite: open, two commits, close".into(),
                Run::Here(Box::new(run)),
            ));
        }
        Server::Redis(_)
        | Server::Redlock(_)
        | Server::ZooKeeper(_)
        | Server::Postgres(_)
        | Server::Mysql(_) => {}
    }
    runs
}

fn command<'a>(name: &str, make: impl Fn() -> Result<Command> + 'a) -> (String, Run<'a>) {
    (name.to_owned(), Run::Command(Box::new(make)))
}

/// Runs them at once; how long until all have ended, in milliseconds.
fn timed(commands: Vec<Command>) -> Result<f64> {
    let begun = now();
    let mut running: Vec<(String, Child)> = Vec::new();
    for mut command in commands {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(text)?;
        running.push((command.get_program().to_string_lossy().into_owned(), child));
    }
    let mut ended: Vec<(String, ExitStatus)> = Vec::new();
    for (program, mut child) in running {
        ended.push((program, child.wait().map_err(text)?));
    }
    let took = (now() - begun) as f64 / 1e6;
    match ended.iter().find(|(_, status)| !status.success()) {
        None => Ok(took),
        Some((program, status)) => Err(format!("{program} ended with {status}")),
    }
}
