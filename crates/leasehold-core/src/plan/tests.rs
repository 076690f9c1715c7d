//! The plan under simulated clocks: each case is named for the hazard.

use super::*;
use crate::claim::Token;

const SECOND: u64 = 1_000_000_000;
const TTL: Duration = Duration::from_secs(30);
const HALF: f64 = 0.5;

/// The three clocks, all showing `seconds`; the wall clock runs an hour ahead of the others.
fn at(seconds: f64) -> Moment {
    let boot = (seconds * 1e9) as u64;
    Moment {
        boot,
        monotonic: boot,
        real: boot + 3600 * SECOND,
    }
}

fn grant(since: Moment, ttl: Duration) -> Grant {
    Grant {
        token: Token::new(1).unwrap(),
        since,
        ttl,
    }
}

fn plan(renews: bool, max_hold: Option<Duration>) -> Plan {
    Plan::new(
        &grant(at(100.0), TTL),
        TTL,
        renews,
        max_hold,
        Drift::default(),
        HALF,
    )
}

/// 30 s less 1 % and 2 ms, after 100 s.
const DEADLINE: f64 = 129.698;

#[test]
fn a_third_of_the_ttl_after_the_send_a_renewal_is_due() {
    let mut plan = plan(true, None);
    assert_eq!(plan.step(at(100.0)), Step::Sleep(110 * SECOND));
    assert_eq!(
        plan.step(at(110.0)),
        Step::Renew {
            ttl: TTL,
            timeout: Duration::from_secs(5)
        }
    );
}

#[test]
fn jitter_moves_the_renewal_by_a_tenth() {
    for (jitter, due) in [(0.0, 109), (1.0, 111)] {
        let grant = grant(at(100.0), TTL);
        let mut plan = Plan::new(&grant, TTL, true, None, Drift::default(), jitter);
        assert_eq!(plan.step(at(100.0)), Step::Sleep(due * SECOND));
    }
}

#[test]
fn a_hung_renewal_does_not_hide_the_deadline() {
    let mut plan = plan(true, None);
    plan.sent(at(110.0));
    assert_eq!(
        plan.step(at(110.0)),
        Step::Sleep((DEADLINE * 1e9) as u64),
        "the timer is set for the deadline while the renewal hangs"
    );
    assert_eq!(
        plan.step(at(DEADLINE - 0.001)),
        Step::Sleep((DEADLINE * 1e9) as u64)
    );
    assert_eq!(plan.step(at(DEADLINE)), Step::Lost);
    assert_eq!(plan.state(), HoldState::Lost(LossReason::Unreachable));
    assert_eq!(plan.step(at(DEADLINE)), Step::Over);
}

#[test]
fn three_tries_fit_before_the_deadline() {
    let mut plan = plan(true, None);
    let mut now = at(100.0);
    let mut tries = 0;
    for _ in 0..100 {
        match plan.step(now) {
            Step::Sleep(boot) => now = at(boot as f64 / 1e9),
            Step::Renew { timeout, .. } => {
                tries += 1;
                plan.sent(now);
                now = at(now.boot as f64 / 1e9 + timeout.as_secs_f64());
                plan.unanswered(now, 1.0);
                assert_ne!(plan.state(), HoldState::Held);
            }
            Step::Lost | Step::Over => break,
        }
    }
    assert!(tries >= 3, "{tries}");
}

#[test]
fn an_unanswered_renewal_extends_nothing() {
    let mut plan = plan(true, None);
    plan.sent(at(110.0));
    plan.unanswered(at(115.0), HALF);
    assert_eq!(plan.state(), HoldState::Uncertain);
    assert!(!plan.remaining(at(DEADLINE - 0.001)).is_zero());
    assert!(plan.remaining(at(DEADLINE)).is_zero());
}

#[test]
fn a_renewal_counts_from_its_send_not_from_its_answer() {
    let mut plan = plan(true, None);
    plan.sent(at(110.0));
    // The answer is taken in ten seconds later; nothing of that may be gained.
    plan.answered(
        Renewal::Renewed {
            since: at(110.0),
            ttl: TTL,
        },
        HALF,
    );
    assert_eq!(plan.state(), HoldState::Held);
    assert_eq!(
        plan.remaining(at(120.0)),
        Drift::default().usable(TTL) - Duration::from_secs(10)
    );
}

#[test]
fn a_renewal_never_shortens() {
    let mut plan = plan(true, None);
    plan.answered(
        Renewal::Renewed {
            since: at(101.0),
            ttl: Duration::from_secs(300),
        },
        HALF,
    );
    let long = plan.remaining(at(120.0));
    plan.answered(
        Renewal::Renewed {
            since: at(110.0),
            ttl: TTL,
        },
        HALF,
    );
    assert_eq!(plan.remaining(at(120.0)), long);
}

#[test]
fn an_answer_after_the_loss_brings_nothing_back() {
    let mut plan = plan(true, None);
    plan.sent(at(110.0));
    assert_eq!(plan.step(at(200.0)), Step::Lost);
    plan.answered(
        Renewal::Renewed {
            since: at(199.0),
            ttl: TTL,
        },
        HALF,
    );
    assert!(plan.remaining(at(199.0)).is_zero());
    assert_eq!(plan.step(at(200.0)), Step::Over);
}

#[test]
fn without_renewals_the_hold_ends_with_its_ttl() {
    let mut plan = plan(false, None);
    assert_eq!(plan.step(at(128.0)), Step::Sleep((DEADLINE * 1e9) as u64));
    assert_eq!(plan.step(at(DEADLINE)), Step::Lost);
    assert_eq!(plan.state(), HoldState::Lost(LossReason::Expired));
}

#[test]
fn a_suspend_counts_though_the_monotonic_clock_stood_still() {
    let plan = plan(true, None);
    let mut woken = at(131.0);
    woken.monotonic = at(101.0).monotonic;
    woken.real = at(101.0).real;
    assert!(plan.remaining(woken).is_zero());
}

#[test]
fn a_stopped_machine_shows_by_the_wall_clock_alone() {
    let mut plan = plan(true, None);
    let mut woken = at(100.5);
    woken.real = at(200.0).real;
    assert!(
        plan.remaining(woken).is_zero(),
        "not held until the store says so"
    );
    // Lost or not is the store's to say: it is asked at once.
    assert!(
        matches!(plan.step(woken), Step::Sleep(_)),
        "a short pause after the last send"
    );
    let mut later = at(102.0);
    later.real = at(201.0).real;
    assert!(matches!(plan.step(later), Step::Renew { .. }));
    assert_eq!(plan.state(), HoldState::Uncertain);
    plan.sent(later);
    plan.answered(
        Renewal::Renewed {
            since: later,
            ttl: TTL,
        },
        HALF,
    );
    assert_eq!(
        plan.state(),
        HoldState::Held,
        "a clock step alone ends no lock"
    );
    assert!(!plan.remaining(later).is_zero());
}

#[test]
fn a_stopped_machine_whose_lock_is_gone_is_told() {
    let mut plan = plan(true, None);
    plan.sent(at(102.0));
    plan.answered(Renewal::Lost(LossReason::Stolen), HALF);
    assert_eq!(plan.state(), HoldState::Lost(LossReason::Stolen));
    assert!(plan.remaining(at(102.0)).is_zero());
}

#[test]
fn a_wall_clock_set_back_gains_nothing() {
    let plan = plan(true, None);
    let mut later = at(110.0);
    later.real = 0;
    assert_eq!(
        plan.remaining(later),
        Drift::default().usable(TTL) - Duration::from_secs(10)
    );
}

#[test]
fn trouble_told_by_the_store_is_asked_about_but_not_in_a_busy_loop() {
    let mut plan = plan(false, None);
    plan.poke();
    assert_eq!(plan.state(), HoldState::Uncertain);
    let Step::Renew { ttl, .. } = plan.step(at(120.0)) else {
        panic!("asked also where renewals are off");
    };
    assert_eq!(
        ttl,
        plan.lease.remaining_steady(at(120.0)),
        "and not made longer"
    );
    plan.sent(at(120.0));
    plan.poke();
    plan.answered(
        Renewal::Renewed {
            since: at(120.0),
            ttl,
        },
        HALF,
    );
    assert_eq!(plan.state(), HoldState::Uncertain, "told again meanwhile");
    assert!(matches!(plan.step(at(120.5)), Step::Sleep(at) if at == 121 * SECOND));
}

#[test]
fn the_longest_hold_ends_it_whatever_the_renewals() {
    let mut plan = plan(true, Some(Duration::from_secs(15)));
    assert_eq!(plan.remaining(at(110.0)), Duration::from_secs(5));
    assert_eq!(
        plan.step(at(110.0)),
        Step::Sleep(115 * SECOND),
        "the lease lasts longer than the hold may: nothing to renew"
    );
    assert_eq!(plan.step(at(115.0)), Step::Lost);
    assert_eq!(plan.state(), HoldState::Lost(LossReason::MaxHold));
}

#[test]
fn a_loss_that_was_told_stays_one_after_the_release() {
    let mut plan = plan(true, None);
    plan.lose(LossReason::Broken);
    plan.release();
    assert_eq!(plan.state(), HoldState::Lost(LossReason::Broken));
}
