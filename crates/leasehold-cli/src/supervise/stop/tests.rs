use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn held(now: u64, remaining: u64) -> Look {
    Look {
        now: now * MS,
        remaining: ms(remaining),
        lost: None,
    }
}

fn lost(now: u64, reason: LossReason) -> Look {
    Look {
        now: now * MS,
        remaining: Duration::ZERO,
        lost: Some(reason),
    }
}

/// A lease of 3.2 s seen at 1000 ms, to be over 200 ms early, and 500 ms between TERM and KILL.
fn begun() -> Stop {
    Stop::new(held(1000, 3200), ms(500), None)
}

fn order(term_at: u64, kill_at: u64) -> Order {
    Order {
        term_at: term_at * MS,
        kill_at: kill_at * MS,
    }
}

#[test]
fn a_frozen_supervisor_has_the_job_killed_before_the_deadline() {
    // TERM leaves it kill-after, a little later for the guardian than for the supervisor itself.
    assert_eq!(begun().order(), order(3700, 4000));
}

#[test]
fn a_renewal_moves_what_the_guardian_was_told() {
    let mut stop = begun();
    stop.look(held(2000, 3200));
    assert_eq!(stop.why(), None);
    assert_eq!(stop.order(), order(4700, 5000));
}

#[test]
fn unanswered_renewals_end_the_job_before_the_deadline() {
    let mut stop = begun();
    stop.look(held(3499, 701));
    assert_eq!(stop.why(), None);
    stop.look(held(3500, 700));
    assert_eq!(stop.why(), Some(Why::Lost));
    assert_eq!(stop.order(), order(3500, 4000));
}

#[test]
fn a_late_renewal_does_not_spare_a_job_that_was_told_to_end() {
    let mut stop = begun();
    stop.look(held(3500, 700));
    stop.look(held(3600, 3200));
    assert_eq!(stop.order(), order(3500, 4000));
    assert_eq!(stop.why(), Some(Why::Lost));
}

#[test]
fn a_loss_that_is_learnt_leaves_the_job_its_time_to_end() {
    let mut stop = begun();
    stop.look(lost(1100, LossReason::Stolen));
    assert_eq!(stop.why(), Some(Why::Lost));
    assert_eq!(stop.order(), order(1100, 1600));
    // Looking again doesn't put it off.
    stop.look(lost(1300, LossReason::Stolen));
    assert_eq!(stop.order(), order(1100, 1600));
}

#[test]
fn a_loss_at_the_deadline_leaves_no_time() {
    let mut stop = begun();
    stop.look(lost(4000, LossReason::Unreachable));
    assert_eq!(stop.why(), Some(Why::Lost));
    assert!(stop.is_killing(4000 * MS));
}

#[test]
fn a_wall_clock_stepped_forward_ends_no_job() {
    let mut stop = begun();
    stop.look(held(1500, 0));
    assert_eq!(stop.why(), None);
    assert_eq!(stop.order(), order(3700, 4000));
}

#[test]
fn who_overslept_knows_that_the_guardian_acted() {
    let mut stop = begun();
    // Woken after the guardian's TERM, and a renewal was quicker.
    stop.look(held(3700, 3200));
    assert_eq!(stop.why(), Some(Why::Lost));
    assert_eq!(stop.order(), order(3700, 4000));
}

#[test]
fn the_longest_hold_ends_the_job_and_the_lease_bounds_it() {
    let mut stop = Stop::new(held(0, 3200), ms(500), Some(ms(1000)));
    stop.look(held(999, 3200));
    assert_eq!(stop.why(), None);
    stop.look(held(1000, 3200));
    assert_eq!(stop.why(), Some(Why::MaxHold));
    assert_eq!(stop.order(), order(1000, 1500));

    let mut stop = Stop::new(held(0, 1760), ms(500), Some(ms(1000)));
    stop.look(held(1000, 760));
    assert_eq!(stop.why(), Some(Why::MaxHold));
    stop.look(lost(1100, LossReason::Broken));
    assert_eq!(stop.order(), order(1000, 1500));
}

#[test]
fn the_second_request_to_end_kills() {
    let mut stop = begun();
    assert!(stop.ask(1100 * MS));
    assert_eq!(stop.why(), None);
    assert!(!stop.ask(1600 * MS));
    assert_eq!(stop.why(), Some(Why::Asked));
    assert_eq!(stop.order(), order(1600, 1600));
}

#[test]
fn one_request_that_comes_twice_is_one() {
    let mut stop = begun();
    assert!(stop.ask(1100 * MS));
    assert!(!stop.ask(1599 * MS));
    assert_eq!(stop.why(), None);
}

#[test]
fn a_job_that_is_being_stopped_gets_no_other_term_and_the_reason_stays() {
    let mut stop = begun();
    stop.look(lost(1100, LossReason::Stolen));
    assert!(!stop.ask(1200 * MS));
    assert_eq!(stop.order(), order(1100, 1600));
    assert!(!stop.ask(1700 * MS));
    assert_eq!(stop.why(), Some(Why::Lost));
    assert_eq!(stop.order(), order(1700, 1700));
}

#[test]
fn a_job_that_has_ended_is_not_stopped_for_what_was_still_to_come() {
    let mut stop = Stop::new(held(0, 3200), ms(500), Some(ms(1000)));
    stop.ended();
    stop.look(held(1000, 2200));
    assert_eq!(stop.why(), None);
    stop.look(held(2600, 600));
    assert_eq!(stop.why(), None);
    stop.look(lost(2700, LossReason::Broken));
    assert_eq!(stop.why(), Some(Why::Lost));
}

#[test]
fn an_idle_job_is_looked_at_a_few_times_per_lease() {
    let ttl = 30_000;
    let mut stop = Stop::new(held(0, ttl), ms(5000), None);
    let (mut now, mut renewed, mut looks) = (0, 0, 0);
    while now < 600_000 * MS {
        now = stop.look_at(now);
        looks += 1;
        while renewed + ttl / 3 * MS <= now {
            renewed += ttl / 3 * MS;
        }
        stop.look(held(now / MS, ttl - (now - renewed) / MS));
        assert_eq!(stop.why(), None);
    }
    // Twenty leases long.
    assert!(looks < 100, "{looks} looks");
}

proptest! {
    /// Whatever comes when: the job is dead by the deadline that the holder knows, TERM leaves it its time,
    /// and what was decided is never put off.
    #[test]
    fn no_job_outlives_its_lease(
        kill_after in 0_u64..1000,
        max_hold in proptest::option::of(1_u64..20_000),
        // Time passed, whether a renewal got through, whether the user asks.
        steps in prop::collection::vec((1_u64..2500, any::<bool>(), prop::bool::weighted(0.05)), 1..40),
    ) {
        let (ttl, lead) = (3200, 200);
        let mut stop = Stop::new(held(0, ttl), ms(kill_after), max_hold.map(ms));
        let (mut now, mut deadline) = (0, ttl);
        for (passed, renewed, asks) in steps {
            let before = stop.order();
            let was_stopping = stop.why().is_some();
            now += passed;
            if renewed && now < deadline {
                deadline = now + ttl;
            }
            let look = if now < deadline {
                held(now, deadline - now)
            } else {
                lost(now, LossReason::Unreachable)
            };
            stop.look(look);
            if asks {
                stop.ask(now * MS);
            }
            let told = stop.order();
            prop_assert!(told.kill_at <= (deadline - lead).max(now) * MS);
            prop_assert!(told.term_at <= told.kill_at.max(now * MS));
            if was_stopping {
                prop_assert!(told.kill_at <= before.kill_at.max(now * MS));
                prop_assert!(stop.why().is_some());
            } else if stop.why().is_none() {
                let latest = ((deadline - lead).saturating_sub(kill_after) + kill_after / 2 + 1) * MS;
                prop_assert!(told.term_at <= latest);
                prop_assert!(now * MS < before.term_at, "the guardian acted, and nobody noticed");
            }
        }
    }
}
