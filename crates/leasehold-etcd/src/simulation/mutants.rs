//! What the simulation is worth: faults put into the clients, and assumptions broken, must show within some seeds.
//! Nothing of this is in what ships.

use leasehold_testkit::sim::seeds;

use super::scenario::Assumption;
use super::seeds::Setup;
use super::world::Faults;

/// Seeds in which each fault must show.
const SEEDS: u64 = 3_000;

/// Two holders at a time: seen by the cluster, or in true time.
const TWO: &[&str] = &["believes", "two holders"];

fn shows(setup: &Setup, says: &[&str]) {
    seeds::shows(SEEDS, says, || setup.worker());
}

fn client(faults: Faults, says: &[&str]) {
    let broken = None;
    shows(&Setup { faults, broken }, says);
}

fn broken(assumption: Assumption) {
    let setup = Setup {
        broken: Some(assumption),
        ..Setup::default()
    };
    shows(&setup, TWO);
}

#[test]
fn a_keep_alive_that_counts_without_a_quorum_read() {
    let faults = Faults {
        keep_alive_alone: true,
        ..Faults::default()
    };
    client(faults, TWO);
}

#[test]
fn a_lease_that_counts_from_the_answer() {
    let faults = Faults {
        from_the_answer: true,
        ..Faults::default()
    };
    client(faults, TWO);
}

#[test]
fn a_token_from_the_header_of_an_answer() {
    let faults = Faults {
        header_token: true,
        ..Faults::default()
    };
    client(faults, &["with token"]);
}

#[test]
fn a_clean_up_that_does_not_void_tries_without_an_answer() {
    let faults = Faults {
        no_voiding: true,
        ..Faults::default()
    };
    client(faults, &["left behind", "never served"]);
}

#[test]
fn a_grant_without_reading_the_own_key_after_the_wait() {
    let faults = Faults {
        no_reading: true,
        ..Faults::default()
    };
    client(faults, TWO);
}

#[test]
fn a_clock_that_stands_still_in_suspend() {
    let faults = Faults {
        monotonic_only: true,
        ..Faults::default()
    };
    client(faults, TWO);
}

#[test]
fn drift_far_beyond_the_margin_lets_two_hold() {
    broken(Assumption::DriftWithinMargin);
}

#[test]
fn a_paused_machine_that_is_not_told_lets_two_hold() {
    broken(Assumption::PausedMachineIsTold);
}
