//! Schedules by name: what is sent when, when it lands, and when the answer is seen, to the millisecond.

use std::time::Duration;

use leasehold_core::Drift;
use leasehold_core::backend::{Attempt, Grant};
use leasehold_core::plan::{Plan, Step};
use leasehold_testkit::sim::{Habits, MS, Weather};
use redis::Value;

use super::desk::{Desk, START, TTL, Waiter, at, name};
use super::lua::{Interpreter, Texts};
use super::scenario::Scenario;
use super::store::Reply;
use super::world::{Faults, World};
use crate::keys::Keys;
use crate::reply::{self, Message};

fn plan(grant: &Grant) -> Plan {
    Plan::new(grant, TTL, true, None, Drift::default(), 0.5)
}

/// A holder that lets go at 4 s, and one that has waited since 0 with a keep-alive that was sent at 3.3 s and
/// is delayed. The hand-over's message.
fn hand_over(desk: &Desk) -> (Waiter, u64, String) {
    let (mut holder, mut waiter) = (Waiter::new(1, false), Waiter::new(2, true));
    holder.granted(desk, 0);
    waiter.busy(desk, 0);
    let delayed = waiter.tries.send(at(3_300));
    assert_eq!(desk.release(&holder, 4_000), "freed");
    let (channel, payload) = desk.message();
    assert_eq!(channel, waiter.channel);
    (waiter, delayed, payload)
}

#[test]
fn a_hand_over_counts_from_the_try_that_the_store_processed() {
    let desk = Desk::new();
    let (mut waiter, delayed, payload) = hand_over(&desk);
    let grant = waiter.told(&payload).unwrap();
    assert_eq!(grant.since, at(0));
    let plan = plan(&grant);
    assert!(desk.held_by(&waiter, 10_000) && !desk.held_by(&waiter, 10_001));
    assert!(!plan.remaining(at(9_890)).is_zero());
    assert!(plan.remaining(at(9_900)).is_zero());
    // From the newest try sent it would be held for 3.3 s more, while another has it.
    let wrong = waiter.tries.handed(grant.token, delayed, TTL).unwrap();
    assert!(!self::plan(&wrong).remaining(at(13_100)).is_zero());
    let mut next = Waiter::new(3, false);
    assert!(next.granted(&desk, 10_001).token > grant.token);
}

#[test]
fn the_delayed_keep_alive_makes_the_lease_longer_once_it_has_landed() {
    let desk = Desk::new();
    let (mut waiter, delayed, payload) = hand_over(&desk);
    let handed = waiter.told(&payload).unwrap();
    let Attempt::Granted(grant) = desk.lands(&mut waiter, delayed, 9_000) else {
        panic!("it is ours");
    };
    assert_eq!((grant.since, grant.token), (at(3_300), handed.token));
    assert!(desk.held_by(&waiter, 19_000) && !desk.held_by(&waiter, 19_001));
}

#[test]
fn one_frozen_past_its_window_lets_go_of_nothing_that_the_next_has() {
    let desk = Desk::new();
    let (mut frozen, _, payload) = hand_over(&desk);
    let mut next = Waiter::new(3, true);
    next.busy(&desk, 5_000);
    let grant = next.granted(&desk, 10_001);
    // It wakes, finds the message, and its time is over.
    let late = frozen.told(&payload).unwrap();
    assert!(plan(&late).remaining(at(12_000)).is_zero());
    assert!(late.token < grant.token);
    assert_eq!(desk.release(&frozen, 12_000), "another");
    assert!(desk.held_by(&next, 12_000));
    assert_eq!(desk.renew(&frozen, 12_000), 2);
}

#[test]
fn a_message_that_arrives_after_the_window_is_of_no_use() {
    let desk = Desk::new();
    let (mut waiter, delayed, payload) = hand_over(&desk);
    let mut other = Waiter::new(3, false);
    other.granted(&desk, 10_001);
    // The keep-alive lands after the window: busy, so no hand-over can name an older try.
    assert!(matches!(
        desk.lands(&mut waiter, delayed, 10_500),
        Attempt::Busy(_)
    ));
    assert!(waiter.told(&payload).is_none());
}

#[test]
fn a_cancel_that_crosses_a_hand_over_passes_the_lock_on() {
    let desk = Desk::new();
    let (mut holder, mut first, mut second) = (
        Waiter::new(1, false),
        Waiter::new(2, true),
        Waiter::new(3, true),
    );
    holder.granted(&desk, 0);
    first.busy(&desk, 100);
    second.busy(&desk, 200);
    let delayed = first.tries.send(at(3_000));
    desk.release(&holder, 4_000);
    assert!(desk.message().1.contains(&first.owner.to_hex()));
    // The cancel was sent before the message arrived.
    assert_eq!(desk.release(&first, 4_001), "freed");
    assert!(second.told(&desk.message().1).is_some());
    assert!(desk.held_by(&second, 4_001));
    // The try that was under way lands last.
    desk.release(&second, 5_000);
    let answer = desk.processes(&first, delayed, 5_001);
    assert_eq!(
        answer,
        Value::Array(vec![Value::BulkString(b"gone".to_vec())])
    );
    assert_eq!(desk.holder(5_001), None);
    assert_eq!(desk.left(60_000), [desk.keys.counter.as_str()]);
}

#[test]
fn a_released_owner_never_takes_the_lock() {
    let desk = Desk::new();
    let mut waiter = Waiter::new(1, false);
    let number = waiter.tries.send(at(0));
    // No answer; the clean-up overtakes the try on another connection.
    assert_eq!(desk.release(&waiter, 1_000), "expired");
    for ms in [1_001, 10_000, 20_000] {
        desk.processes(&waiter, number, ms);
        assert_eq!(desk.holder(ms), None);
    }
}

#[test]
fn two_that_take_an_expired_lock_at_once_are_served_in_turn() {
    for waits in [false, true] {
        let desk = Desk::new();
        let mut dead = Waiter::new(1, false);
        let (mut first, mut second) = (Waiter::new(2, waits), Waiter::new(3, waits));
        dead.granted(&desk, 0);
        for ms in [3_000, 6_000, 9_000] {
            first.busy(&desk, ms);
            second.busy(&desk, ms);
        }
        let grant = first.granted(&desk, 10_001);
        let busy = second.busy(&desk, 10_001);
        assert_eq!(busy.holder.unwrap().token, Some(grant.token));
        assert_eq!(desk.redis.store().published, []);
    }
}

#[test]
fn one_that_looks_out_of_turn_keeps_its_place() {
    let desk = Desk::new();
    let (mut dead, mut waiters) = (
        Waiter::new(1, false),
        [2, 3, 4].map(|n| Waiter::new(n, true)),
    );
    dead.granted(&desk, 0);
    for waiter in &mut waiters {
        waiter.busy(&desk, 5_000);
    }
    let [first, second, third] = &mut waiters;
    // The second looks first: the first is given the lock, and the second still comes before the third.
    assert_eq!(second.busy(&desk, 10_001).position, Some(0));
    assert!(first.told(&desk.message().1).is_some());
    assert_eq!(third.busy(&desk, 10_002).position, Some(1));
    desk.release(first, 10_003);
    assert!(second.told(&desk.message().1).is_some());
}

#[test]
fn a_counter_that_expires_while_the_lock_is_held_lowers_no_token() {
    let desk = Desk::new();
    let (mut holder, mut waiter) = (Waiter::new(1, false), Waiter::new(2, true));
    let grant = holder.granted(&desk, 0);
    desk.redis.store().command(&["DEL", &desk.keys.counter]);
    // Without the counter it is taken for another make's, and still waited for.
    let busy = waiter.busy(&desk, 1_000);
    assert!(busy.holder.unwrap().token.is_none());
    assert_eq!(busy.retry_in, Some(Duration::from_millis(100)));
    assert_eq!(desk.renew(&holder, 2_000), 1);
    assert_eq!(desk.release(&holder, 3_000), "freed");
    let next = waiter.told(&desk.message().1).unwrap();
    assert!(next.token > grant.token);
    let ttl = desk.redis.store().command(&["PTTL", &desk.keys.counter]);
    assert!(
        matches!(ttl, Reply::Int(ms) if ms >= 7 * 24 * 3_600_000),
        "{ttl:?}"
    );
}

#[test]
fn the_retry_of_a_try_whose_answer_was_lost_gets_the_same_token() {
    let desk = Desk::new();
    let mut waiter = Waiter::new(1, true);
    let number = waiter.tries.send(at(0));
    desk.processes(&waiter, number, 1);
    let noted = desk.redis.store().text(&desk.keys.counter).unwrap();
    let grant = waiter.granted(&desk, 5_000);
    let token = noted.split(' ').next().unwrap();
    assert_eq!(grant.token.to_string(), token);
    assert_eq!(grant.since, at(5_000));
    assert!(desk.held_by(&waiter, 15_000));
}

/// When the second in the queue, told nothing, gets a lock that went to the first, who is frozen.
fn served_behind_a_frozen_one(desk: &Desk) -> u64 {
    let (mut holder, mut frozen, mut next) = (
        Waiter::new(1, false),
        Waiter::new(2, true),
        Waiter::new(3, true),
    );
    holder.granted(desk, 0);
    frozen.busy(desk, 3_900);
    let mut ms = 3_950;
    let mut busy = next.busy(desk, ms);
    desk.release(&holder, 4_000);
    for _ in 0..100 {
        ms += busy.retry_in.unwrap().as_millis() as u64 + 1;
        let number = next.tries.send(at(ms));
        match desk.lands(&mut next, number, ms) {
            Attempt::Granted(_) => return ms,
            Attempt::Busy(again) => busy = again,
        }
    }
    panic!("never served");
}

#[test]
fn a_frozen_first_waiter_costs_at_most_its_alive_window() {
    let served = served_behind_a_frozen_one(&Desk::new());
    assert!((13_900..13_950).contains(&served), "{served}");
    // With a whole window from the hand-over on it costs more.
    let text = Texts::shipped().with(
        "call('SET', L, head, 'PX', window)",
        "call('SET', L, head, 'PX', alive)",
    );
    let served = served_behind_a_frozen_one(&Desk::with(&text));
    assert!(served >= 14_000, "{served}");
}

/// Whether a lock goes to the second at once when the first has been silent for too long.
fn passes_the_dead_over(desk: &Desk) -> bool {
    let (mut holder, mut dead, mut alive) = (
        Waiter::new(1, false),
        Waiter::new(2, true),
        Waiter::new(3, true),
    );
    holder.granted(desk, 0);
    dead.busy(desk, 0);
    assert_eq!(desk.renew(&holder, 9_000), 1);
    alive.busy(desk, 9_000);
    desk.release(&holder, 10_001);
    desk.held_by(&alive, 10_001)
}

#[test]
fn dead_waiters_are_passed_over() {
    assert!(passes_the_dead_over(&Desk::new()));
    let text = Texts::shipped().with(
        "tonumber(till) > now then\n        return head, n, alive, tonumber(till) - now,",
        "true then\n        return head, n, alive, alive,",
    );
    assert!(!passes_the_dead_over(&Desk::with(&text)));
}

#[test]
fn waiters_whose_process_no_longer_listens_are_passed_over_at_once() {
    // Handed over, and told that the lock is free after a second of hand-overs in a row.
    for since in [0, 2_000] {
        let desk = Desk::new();
        let (mut holder, mut deaf, mut alive) = (
            Waiter::new(1, false),
            Waiter::new(2, true),
            Waiter::new(3, true),
        );
        holder.granted(&desk, 0);
        deaf.busy(&desk, 10);
        alive.busy(&desk, 20);
        desk.redis.store().listeners.remove(&deaf.channel);
        let streak = (START - since).to_string();
        let counter = &desk.keys.counter;
        let noted = desk.redis.store().text(counter).unwrap();
        let noted = noted.replace(" 0 0 {}", &format!(" 1 {streak} {{}}"));
        desk.redis.store().command(&["SET", counter, &noted]);
        desk.release(&holder, 100);
        let told = std::mem::take(&mut desk.redis.store().published);
        assert_eq!(told.last().unwrap().0, alive.channel, "{told:?}");
    }
}

#[test]
fn a_key_that_is_no_lock_is_an_error_and_stays_as_it_is() {
    let desk = Desk::new();
    desk.redis
        .store()
        .command(&["HSET", &desk.keys.lock, "a", "b"]);
    let mut waiter = Waiter::new(1, true);
    let number = waiter.tries.send(at(0));
    let answer = reply::try_reply(desk.processes(&waiter, number, 0));
    assert!(answer.unwrap_err().to_string().contains("hash"));
    assert_eq!(desk.release(&waiter, 1), "another");
    assert_eq!(desk.renew(&waiter, 1), 2);
    let kept = desk.redis.store().command(&["HGET", &desk.keys.lock, "a"]);
    assert_eq!(kept, Reply::Text("b".into()));
}

#[test]
fn a_broken_hold_says_so_and_the_lock_goes_on() {
    let desk = Desk::new();
    let (mut holder, mut waiter) = (Waiter::new(1, false), Waiter::new(2, true));
    holder.granted(&desk, 0);
    waiter.busy(&desk, 10);
    desk.break_hold(1_000);
    let told = std::mem::take(&mut desk.redis.store().published);
    assert!(waiter.told(&told[0].1).is_some());
    assert_eq!(Message::parse(&told[1].1).unwrap().owner(), holder.owner);
    assert_eq!(desk.renew(&holder, 1_001), 2);
    let broken = desk.redis.store().text(&Keys::broken(&name()));
    assert_eq!(broken, Some(holder.owner.to_hex()));
    assert_eq!(desk.release(&holder, 1_002), "another");
}

/// How often a polling client of another make gets a lock that eight waiters want all the time.
fn polls_that_hold(always_hand_over: bool, polls_within: u64) -> usize {
    let mut scenario = Scenario::new(1, None);
    scenario.base = 1_000 * MS;
    scenario.names = 1;
    scenario.ppm = vec![0; 4];
    scenario.pollers = 1;
    scenario.polls_within = polls_within;
    scenario.weather = Weather::fine(MS / 10..MS);
    scenario.nemeses.clear();
    scenario.quiet_at = 60_000 * MS;
    scenario.always_hand_over = always_hand_over;
    scenario.clients = (0..8)
        .map(|client| Habits {
            machine: client % 4,
            name: 0,
            ttl: Duration::from_secs(1),
            waits: 1.0,
            gives_up: 0.0,
            renews: true,
            works: 20 * MS,
            thinks: 2 * MS,
        })
        .collect();
    let redis = Interpreter::new(&Texts::shipped());
    let mut world = World::new(scenario, &redis, Faults::default());
    world.run_until(world.scenario.end_at());
    world.finish();
    assert_eq!(world.violation, None);
    world.pollers[0].grants
}

#[test]
fn a_client_that_polls_does_not_starve() {
    let (fair, always) = (
        polls_that_hold(false, 10 * MS),
        polls_that_hold(true, 10 * MS),
    );
    // The key is free for a round trip each second: how often a poll falls into that is all there is.
    assert!(fair >= 5 && always == 0, "{fair} and {always}");
}

#[test]
fn a_hold_by_hand_over_is_renewed_to_its_full_length_soon() {
    let desk = Desk::new();
    let (mut waiter, _, payload) = hand_over(&desk);
    let mut plan = plan(&waiter.told(&payload).unwrap());
    // A third of the window went by while it waited.
    assert!(matches!(plan.step(at(4_001)), Step::Renew { ttl: TTL, .. }));
}
