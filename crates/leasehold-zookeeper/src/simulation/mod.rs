//! The queue and the sessions on ZooKeeper under simulated clocks, networks, machines and members.
//!
//! What is simulated is what runs, all of it down to the bytes of a connection: the core's wait loop and keeper, its
//! sessions and their places, and this crate's contenders, renewals, endings and links. Around them is a small ZooKeeper
//! of three members: one order of changes that each takes in at its own time and answers reads from; a leader that counts
//! the sessions, ends them by its tick, and learns with half a tick's delay whom the others have heard of; members that
//! are cut off and go on answering for a while. Left out are TLS, users and chroots, and what operators look at.
//!
//! A run is made of its seed alone. A seed that fails is replayed, with all that happened in it, by the command that
//! its failure prints.

mod ensemble;
pub(crate) mod fault;
mod message;
mod mutants;
mod nemesis;
mod scenario;
mod seeds;
mod serving;
mod tree;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use leasehold_core::url::StoreUrl;
use leasehold_core::{Address, Client};
use leasehold_testkit::sim::holders::Holders;
use leasehold_testkit::sim::seeds::Outcome;
use leasehold_testkit::sim::wire::{Stream, Wires};
use leasehold_testkit::sim::{Clock, Network, Rng, SECOND, Weather, World};

use self::ensemble::{Ensemble, State};
use self::scenario::Scenario;
use self::serving::{Front, Served};
use crate::backend::ZooKeeper;
use crate::config::Config;

thread_local! {
    /// The ensemble of the world that runs on this thread.
    static ENSEMBLE: RefCell<Option<Rc<Ensemble>>> = const { RefCell::new(None) };
}

/// A connection to a member of the simulated ensemble, where there is one.
pub(crate) fn dial(host: &Address) -> Option<Stream> {
    let ensemble = ENSEMBLE.with_borrow(Option::clone)?;
    let (member, machine) = host.host.strip_prefix('m')?.split_once("of")?;
    let member = member.parse().ok()?;
    let (wire, stream) = ensemble.wires.dial(machine.parse().ok()?);
    let served = Served::new(member);
    ensemble.state.borrow_mut().wires.insert(wire, served);
    Some(stream)
}

const EPOCH: u64 = 1_790_000_000 * SECOND;

/// Runs a scenario to its end; what was noted where somebody wants to know.
fn run(scenario: &Scenario, traces: bool) -> (Outcome, Vec<String>) {
    let mut rng = Rng::new(!scenario.seed);
    let state = State::new(&mut rng, &scenario.member_ppm);
    let world = World::new(rng, scenario.tells);
    if fault::is_put_in(fault::Fault::MonotonicOnly) {
        world.reads_the_monotonic_clock_alone();
    }
    if traces {
        world.trace();
    }
    let network = Network::new(scenario.weather.clone());
    let wires = Wires::new(&world, network, scenario.base);
    let holders = Holders::new(&world, scenario.quiet_at);
    let ensemble = Rc::new(Ensemble {
        world: world.clone(),
        wires: wires.clone(),
        holders: holders.clone(),
        settings: scenario.settings.clone(),
        state: RefCell::new(state),
    });
    wires.serve(Rc::new(Front(ensemble.clone())));
    ensemble.start();
    let (flushes, observes) = (wires.clone(), holders.clone());
    world.watch(move |machine| {
        flushes.flush();
        observes.observe(machine);
    });
    for (machine, ppm) in scenario.ppm.iter().enumerate() {
        // Machines' wall clocks are minutes apart: nothing may depend on them.
        let real = EPOCH + world.chance(|rng| rng.within(0..600 * SECOND));
        world.machine(Clock::new(real, *ppm));
        holders.run(machine, &scenario.programs, async move || {
            let hosts: Vec<String> = (0..3).map(|at| format!("m{at}of{machine}")).collect();
            let url = StoreUrl::parse(&format!("zookeeper://{}", hosts.join(",")))?;
            let store = ZooKeeper::connect(Config::of(url)?).await?;
            Client::new(Arc::new(store), "")
        });
    }
    for (at, nemesis) in &scenario.nemeses {
        let (ensemble, nemesis) = (ensemble.clone(), *nemesis);
        world.at(*at, move || ensemble.strike(nemesis));
    }
    let (calms, travel) = (wires, scenario.weather.travel.clone());
    world.at(scenario.quiet_at, move || {
        calms.weather(|weather| *weather = Weather::fine(travel));
    });
    ENSEMBLE.set(Some(ensemble.clone()));
    world.run_until(scenario.end_at());
    world.note(|| format!("at the end there are {:?}", ensemble.leftovers()));
    let outcome = holders.finish(scenario.settings.names).and_then(|holds| {
        let left = ensemble.leftovers();
        match left.as_slice() {
            [] => Ok(holds),
            left => Err(format!("left behind: {left:?}")),
        }
    });
    world.end();
    ENSEMBLE.set(None);
    (outcome, world.traced())
}
