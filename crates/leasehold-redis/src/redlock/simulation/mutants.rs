//! What the simulation is worth: faults put into the scripts and into what drives the protocol, and assumptions broken,
//! must show within some seeds. Nothing of this is in what ships.

use super::scenario::Assumption;
use super::seeds::Setup;
use super::world::Faults;
use crate::simulation::lua::Texts;
use leasehold_testkit::sim::seeds;

/// Seeds in which each fault must show.
const SEEDS: u64 = 6_000;

fn shows(setup: &Setup, says: &[&str]) {
    seeds::shows(SEEDS, says, || setup.worker());
}

const TWO: &[&str] = &["two holders"];

fn script(right: &str, wrong: &str, says: &[&str]) {
    let setup = Setup {
        texts: Texts::shipped().with(right, wrong),
        ..Setup::shipped()
    };
    shows(&setup, says);
}

fn driver(faults: Faults, says: &[&str]) {
    let setup = Setup {
        faults,
        ..Setup::shipped()
    };
    shows(&setup, says);
}

fn broken(assumption: Assumption, says: &[&str]) {
    let setup = Setup {
        broken: Some(assumption),
        ..Setup::shipped()
    };
    shows(&setup, says);
}

#[test]
fn a_release_that_does_not_look_whose_it_is() {
    script(
        "if held and held ~= owner then return",
        "if false then return",
        TWO,
    );
}

#[test]
fn a_renewal_that_sets_the_key() {
    script(
        "if current == owner then\n    if call('PTTL', L) < ttl then call('PEXPIRE', L, ttl) end",
        "if true then\n    call('SET', L, owner, 'PX', ttl)",
        &["two holders", "released there"],
    );
}

#[test]
fn a_try_that_does_not_look_for_its_tombstone() {
    script(
        "if call('EXISTS', X) == 1 then return {'void', 'gone'} end",
        "",
        &["released there"],
    );
}

#[test]
fn a_write_back_that_does_not_look_at_the_counter() {
    script(
        "if token <= (tonumber(call('HGET', KEYS[2], 'c')) or token) then return 0 end",
        "",
        &["one token", "fell"],
    );
}

#[test]
fn a_node_that_was_emptied_and_goes_on() {
    // Either look alone is enough for the lock to stay one holder's.
    let texts = Texts::shipped()
        .with(
            "if not floor then return {'void', 'forgot'} end",
            "floor = floor or '0'",
        )
        .with("if not floor then return 0 end", "floor = floor or 0");
    let setup = Setup {
        texts,
        ..Setup::shipped()
    };
    shows(&setup, &["two holders", "one token", "fell"]);
}

#[test]
fn a_node_that_lost_its_memory_and_counts_at_once() {
    let faults = Faults {
        counted_at_once: true,
        ..Faults::default()
    };
    driver(faults, &["two holders", "one token", "fell"]);
}

#[test]
fn a_lease_that_counts_from_the_answer() {
    let faults = Faults {
        from_the_answer: true,
        ..Faults::default()
    };
    driver(faults, TWO);
}

#[test]
fn a_lease_that_counts_from_the_newest_try_sent() {
    let faults = Faults {
        newest_sent: true,
        ..Faults::default()
    };
    driver(faults, TWO);
}

#[test]
fn a_clock_that_is_not_read_again() {
    let faults = Faults {
        one_reading: true,
        ..Faults::default()
    };
    driver(faults, &["handed out with"]);
}

#[test]
fn a_token_that_is_used_before_a_majority_has_it() {
    let faults = Faults {
        token_at_once: true,
        ..Faults::default()
    };
    driver(faults, &["two holders", "one token", "fell"]);
}

#[test]
fn an_unanswered_renewal_that_extends() {
    let faults = Faults {
        unanswered_extends: true,
        ..Faults::default()
    };
    driver(faults, TWO);
}

#[test]
fn an_attempt_that_is_not_cleaned_up() {
    let faults = Faults {
        no_clean_up: true,
        ..Faults::default()
    };
    driver(faults, &["let go of it long ago"]);
}

#[test]
fn a_clean_up_that_is_called_definite_while_a_try_is_unanswered() {
    let faults = Faults {
        no_tombstone: true,
        ..Faults::default()
    };
    driver(faults, &["released there"]);
}

#[test]
fn a_hold_that_is_a_flag() {
    let faults = Faults {
        held_by_flag: true,
        ..Faults::default()
    };
    driver(faults, TWO);
}

#[test]
fn a_clock_that_stands_still_in_suspend() {
    let faults = Faults {
        monotonic_only: true,
        ..Faults::default()
    };
    driver(faults, TWO);
}

#[test]
fn an_owner_that_is_used_again() {
    let faults = Faults {
        one_owner: true,
        ..Faults::default()
    };
    driver(faults, &["two holders", "released there"]);
}

#[test]
fn drift_far_beyond_the_margin_lets_two_hold() {
    broken(Assumption::DriftWithinMargin, TWO);
}

#[test]
fn clocks_of_a_majority_of_nodes_set_forward_let_two_hold() {
    broken(Assumption::NodeClocksAreEven, TWO);
}

#[test]
fn disks_that_lose_what_they_said_they_have_break_the_promises() {
    broken(Assumption::DisksKeep, &["two holders", "one token", "fell"]);
}

#[test]
fn a_paused_machine_that_is_not_told_lets_two_hold() {
    broken(Assumption::PausedMachineIsTold, TWO);
}
