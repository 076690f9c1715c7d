//! leasehold beside the same statements on the raw driver, and beside its peers, in one run.
//!
//! `cargo xtask bench` builds what it needs and starts it. It starts itself again as a worker per connection, so
//! that every library is measured in processes of its own.
//!
//! - `subjects` and `raw_…`: what is measured here; `peers`: who else takes part, and `bring`: how they come here.
//! - `pairs`, `contended`, `held`, `wrapped`: the four things that are measured.
//! - `ways`: writes beside each other; `fence`: what a fenced one costs, and `once` what happens once. Both have no peers.
//! - `report`: the tables.

mod bring;
mod contended;
mod fence;
mod held;
mod once;
mod pairs;
mod peers;
mod raw_consul;
mod raw_etcd;
mod raw_mysql;
mod raw_postgres;
mod raw_redlock;
mod raw_sqlite;
mod raw_zookeeper;
mod report;
mod server;
mod stats;
mod subjects;
mod ways;
#[path = "../../../crates/leasehold-etcd/src/wire/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the messages of leasehold's client; a part is used"
)]
mod wire;
#[path = "../../../crates/leasehold-zookeeper/src/wire.rs"]
#[allow(
    dead_code,
    reason = "the messages of leasehold's client; a part is used"
)]
mod wire_zookeeper;
mod worker;
mod wrapped;

use std::path::PathBuf;
use std::process::ExitCode;

use leasehold_bench_load::Result;

use crate::peers::Entry;
use crate::server::{Server, Store};

const USAGE: &str = "usage: cargo xtask bench [sqlite|redis|redlock|etcd|zookeeper|consul|postgres|mysql|fence|once] [pairs|contended|held|wrapped] [--peers] [--quick] [--write]";

/// What one run is asked for.
struct Plan {
    stores: Vec<Store>,
    writes: Vec<&'static Writes>,
    /// The parts that are measured; all, where none was named.
    parts: Vec<String>,
    peers: bool,
    quick: bool,
    write: bool,
    /// Where cargo builds: the command is there, and what peers need.
    target: PathBuf,
}

impl Plan {
    fn read(target: &str, words: &[&str]) -> Result<Self> {
        let mut plan = Self {
            stores: Vec::new(),
            writes: Vec::new(),
            parts: Vec::new(),
            peers: false,
            quick: false,
            write: false,
            target: target.into(),
        };
        for word in words {
            match *word {
                part if PARTS.iter().any(|(word, ..)| *word == part) => {
                    plan.parts.push(part.to_owned());
                }
                "--peers" => plan.peers = true,
                "--quick" => plan.quick = true,
                "--write" => plan.write = true,
                word => {
                    let store = Store::ALL.iter().find(|store| store.name() == word);
                    let writes = WRITES.iter().find(|writes| writes.name == word);
                    if store.is_none() && writes.is_none() {
                        return Err(USAGE.into());
                    }
                    plan.stores.extend(store);
                    plan.writes.extend(writes);
                }
            }
        }
        if plan.write && !plan.parts.is_empty() {
            return Err(
                "the page takes whole tables: leave out either --write or the parts".into(),
            );
        }
        if plan.stores.is_empty() && plan.writes.is_empty() {
            if plan.parts.is_empty() {
                plan.writes.extend(&WRITES);
            }
            plan.stores = Store::ALL.to_vec();
        }
        Ok(plan)
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match &words[..] {
        ["worker", words @ ..] => subjects::run(words),
        ["bench", target, words @ ..] => Plan::read(target, words).and_then(|plan| bench(&plan)),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(plan: &Plan) -> Result<()> {
    for store in &plan.stores {
        let peers = peers::of(*store, plan)?;
        let tables = measure(plan, *store, &peers)?;
        println!("{tables}");
        if plan.write {
            report::write(store.name(), &tables)?;
        }
    }
    for writes in &plan.writes {
        let tables = ways::tables(plan, writes.plain, writes.places)?;
        println!("{tables}");
        if plan.write {
            report::write(writes.name, &tables)?;
        }
    }
    Ok(())
}

/// Everything on one store, as Markdown.
fn measure(plan: &Plan, store: Store, peers: &[Entry]) -> Result<String> {
    let ours = peers::ours(store);
    let entries: Vec<&Entry> = ours.iter().chain(peers).collect();
    let mut tables = vec![report::machine()?];
    for (word, title, part) in PARTS {
        if !plan.parts.is_empty() && !plan.parts.iter().any(|part| part == word) {
            continue;
        }
        eprintln!("{}: {title}", store.name());
        // A server of its own: what one part leaves behind is not the next one's.
        let server = Server::start(store, &plan.target)?;
        let table = format!("### {title}\n\n{}", part(plan, &server, &entries)?);
        // A part takes minutes, and a later one may fail.
        eprintln!("{table}");
        tables.push(table);
    }
    Ok(tables.join("\n"))
}

type Part = fn(&Plan, &Server, &[&Entry]) -> Result<String>;

/// What is measured: the word for it, its title, and how.
const PARTS: [(&str, &str, Part); 4] = [
    ("pairs", "One lock, nobody else", pairs::table),
    ("contended", "One lock, many contenders", contended::table),
    ("held", "Many locks held", held::table),
    ("wrapped", "A command under a lock", wrapped::table),
];

/// Writes beside each other, which have no parts and no peers.
struct Writes {
    name: &'static str,
    /// What the plain one is called.
    plain: &'static str,
    places: &'static [ways::Open],
}

static WRITES: [Writes; 2] = [
    Writes {
        name: "fence",
        plain: "unguarded",
        places: &fence::PLACES,
    },
    Writes {
        name: "once",
        plain: "the plain row",
        places: &once::PLACES,
    },
];
