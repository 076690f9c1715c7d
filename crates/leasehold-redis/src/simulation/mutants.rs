//! What the simulation is worth: faults put into the scripts and the clients, and assumptions broken, must
//! show within some seeds. Nothing of this is in what ships.

use leasehold_testkit::sim::seeds;

use super::lua::Texts;
use super::scenario::Assumption;
use super::seeds::Setup;
use super::world::Faults;

/// Seeds in which each fault must show.
const SEEDS: u64 = 3_000;

fn shows(setup: &Setup, says: &[&str]) {
    seeds::shows(SEEDS, says, || setup.worker());
}

/// Two holders at a time: seen by the server, or in true time.
const TWO: &[&str] = &["believes", "two holders"];

fn script(right: &str, wrong: &str, says: &[&str]) {
    let setup = Setup {
        texts: Texts::shipped().with(right, wrong),
        ..Setup::shipped()
    };
    shows(&setup, says);
}

fn client(faults: Faults) {
    let setup = Setup {
        faults,
        ..Setup::shipped()
    };
    shows(&setup, TWO);
}

fn broken(assumption: Assumption) {
    let setup = Setup {
        broken: Some(assumption),
        ..Setup::shipped()
    };
    shows(&setup, TWO);
}

#[test]
fn a_release_that_does_not_look_whose_it_is() {
    script(
        "if current ~= owner then\n  if queued",
        "if not current then\n  if queued",
        TWO,
    );
}

#[test]
fn a_renewal_that_sets_the_key() {
    script(
        "if current == owner then\n    if call('PTTL', L) < ttl then call('PEXPIRE', L, ttl) end",
        "if true then\n    call('SET', L, owner, 'PX', ttl)",
        TWO,
    );
}

#[test]
fn a_renewal_that_creates_the_key() {
    // A renewal that lands after the release takes the lock for nobody.
    script(
        "if current == owner then\n    if call('PTTL', L) < ttl then call('PEXPIRE', L, ttl) end",
        "if not current or current == owner then\n    call('SET', L, owner, 'PX', ttl)",
        &["released", "believes"],
    );
}

#[test]
fn a_release_without_a_tombstone() {
    script("if tombstone > 0", "if false", &["which was released"]);
}

#[test]
fn a_try_that_does_not_look_for_its_tombstone() {
    script(
        "if call('EXISTS', KEYS[5]) == 1",
        "if false",
        &["which was released"],
    );
}

#[test]
fn a_hand_over_shorter_than_what_the_waiter_counts() {
    script(
        "call('SET', L, head, 'PX', window)",
        "call('SET', L, head, 'PX', math.ceil(window / 2))",
        TWO,
    );
}

#[test]
fn a_waiter_whose_number_is_kept_and_whose_window_is_not() {
    script(
        "string.format('%.0f', now + alive)",
        "(said and string.match(said, '^%d+ %d+ (%d+)') or string.format('%.0f', now + alive))",
        TWO,
    );
}

#[test]
fn a_token_that_is_the_highest_and_not_one_more() {
    script(
        "string.format('%.0f', last + 1)",
        "string.format('%.0f', last)",
        &["one token"],
    );
}

#[test]
fn a_counter_that_is_deleted_on_release() {
    script(
        "call('DEL', L)\nover(token)\nreturn 'freed'",
        "call('DEL', L)\ncall('DEL', F)\nreturn 'freed'",
        &["fell"],
    );
}

#[test]
fn a_hand_over_that_counts_from_the_newest_try_sent() {
    client(Faults {
        newest_sent: true,
        ..Faults::default()
    });
}

#[test]
fn an_unanswered_renewal_that_extends() {
    client(Faults {
        unanswered_extends: true,
        ..Faults::default()
    });
}

#[test]
fn a_lease_that_counts_from_the_answer() {
    client(Faults {
        from_the_answer: true,
        ..Faults::default()
    });
}

#[test]
fn a_clock_that_stands_still_in_suspend() {
    client(Faults {
        monotonic_only: true,
        ..Faults::default()
    });
}

#[test]
fn a_paused_machine_that_does_not_look_at_the_wall_clock() {
    client(Faults {
        blind_to_the_wall: true,
        ..Faults::default()
    });
}

#[test]
fn no_margin_for_drift() {
    client(Faults {
        no_margin: true,
        ..Faults::default()
    });
}

#[test]
fn drift_far_beyond_the_margin_lets_two_hold() {
    broken(Assumption::DriftWithinMargin);
}

#[test]
fn a_server_that_forgets_lets_two_hold() {
    broken(Assumption::ServerRemembers);
}

#[test]
fn a_server_clock_set_forward_lets_two_hold() {
    broken(Assumption::ServerClockIsEven);
}

#[test]
fn a_paused_machine_that_is_not_told_lets_two_hold() {
    broken(Assumption::PausedMachineIsTold);
}
