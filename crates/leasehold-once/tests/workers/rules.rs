//! What a record says to who asks, in every kind of database.

use std::time::Duration;

use leasehold_core::{ErrorKind, Name};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, State, Success};

use crate::databases::Database;

const HOUR: Duration = Duration::from_secs(3600);

/// What a rule is called, and what shows it in an empty database.
pub(crate) type Rule = (&'static str, fn(&mut dyn Database));

pub(crate) const RULES: [Rule; 9] = [
    (
        "a_repeat_gets_the_result_of_the_first_and_its_times",
        repeats,
    ),
    (
        "a_newer_attempt_takes_over_and_the_older_one_stores_nothing",
        takes_over,
    ),
    (
        "a_key_used_under_another_lock_is_refused_with_both_names",
        belongs,
    ),
    (
        "what_failed_may_be_repeated_and_not_by_an_older_holder",
        fails,
    ),
    (
        "a_period_counts_from_the_start_of_the_last_success_with_a_tenth_as_slack",
        periods,
    ),
    (
        "who_asks_in_the_moment_in_which_a_success_gets_due_is_told_so_or_works",
        gets_due,
    ),
    ("a_record_is_forgotten_after_its_time", expires),
    ("a_store_whose_clock_went_back_does_not_repeat", clock_back),
    ("records_are_listed_by_prefix_and_forgotten", lists),
];

fn nightly() -> Once {
    once("nightly")
}

fn once(key: &str) -> Once {
    Once::new(Name::new(key).unwrap())
}

/// A hold of the lock that the keys belong to.
fn pass(mark: &str) -> Pass {
    format!("nights:{mark}").parse().unwrap()
}

fn lock() -> Name {
    Name::new("nights").unwrap()
}

fn begin(database: &mut dyn Database, once: &Once, mark: &str) -> Begun {
    database.begin(once, &pass(mark)).unwrap()
}

/// Finishes with the mark's text as the result.
fn finish(database: &mut dyn Database, once: &Once, mark: &str) -> Finished {
    database.finish(once, &pass(mark), mark.as_bytes()).unwrap()
}

fn age(database: &mut dyn Database, by: Duration) {
    database.age(i64::try_from(by.as_millis()).unwrap());
}

fn succeed(database: &mut dyn Database, once: &Once, mark: &str) {
    assert_eq!(begin(database, once, mark), Begun::First);
    assert_eq!(finish(database, once, mark), Finished::Recorded);
}

#[track_caller]
fn done(begun: Begun) -> Success {
    match begun {
        Begun::Done(success) => success,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn running(begun: Begun, mark: &str) {
    assert!(
        matches!(&begun, Begun::Running(attempt) if attempt.by == pass(mark)),
        "{begun:?}"
    );
}

fn is_stale(finished: Finished) -> bool {
    matches!(finished, Finished::Stale(_))
}

fn repeats(database: &mut dyn Database) {
    let once = nightly();
    assert_eq!(database.done(&once, &lock()).unwrap(), None);
    assert_eq!(begin(database, &once, "3.41"), Begun::First);
    assert_eq!(database.done(&once, &lock()).unwrap(), None);
    age(database, 2 * HOUR);
    assert_eq!(finish(database, &once, "3.41"), Finished::Recorded);
    for mark in ["3.40", "3.41", "3.42", "4.1"] {
        let success = done(begin(database, &once, mark));
        assert_eq!(success.result, b"3.41");
        assert_eq!(success.by, pass("3.41"));
        let took = success.ended.duration_since(success.started).unwrap();
        assert!(took >= 2 * HOUR && took < 3 * HOUR, "{took:?}");
        let age = success.age;
        assert!(age >= took && age < 3 * HOUR, "{age:?}");
        let seen = database.done(&once, &lock()).unwrap().unwrap();
        assert_eq!(seen.result, success.result);
    }
    // An answer that was lost is asked for again.
    assert_eq!(finish(database, &once, "3.41"), Finished::Recorded);
    assert!(is_stale(finish(database, &once, "3.40")));
    assert_eq!(finish(database, &once, "3.42"), Finished::NotBegun);
    // Another key is another matter.
    assert_eq!(begin(database, &self::once("nightly/2"), "1"), Begun::First);
    let error = database.begin(&once, &pass("9223372036854775808"));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
}

fn takes_over(database: &mut dyn Database) {
    // Of numbers, not of texts; and beyond what a floating-point number tells apart.
    let (far, next) = ("9007199254740992", "9007199254740993");
    for (older, same, newer) in [
        ("6", "7", "10"),
        ("9007199254740991", far, next),
        (far, next, "1.1"),
        // The token alone would be the same.
        ("1.7", "2.7", "3.7"),
    ] {
        let once = once(same);
        assert_eq!(begin(database, &once, same), Begun::First);
        for mark in [older, same] {
            running(begin(database, &once, mark), same);
        }
        assert_eq!(begin(database, &once, newer), Begun::First);
        assert!(is_stale(finish(database, &once, same)));
        assert!(!database.fail(&once, &pass(same)).unwrap());
        assert_eq!(finish(database, &once, newer), Finished::Recorded);
        assert!(is_stale(finish(database, &once, same)));
        let repeat = begin(database, &once, "4294967295.9223372036854775807");
        assert_eq!(done(repeat).result, newer.as_bytes());
    }
}

fn belongs(database: &mut dyn Database) {
    let other: Pass = "days:9".parse().unwrap();
    for (key, end) in [
        ("running", None),
        ("failed", Some(false)),
        ("done", Some(true)),
    ] {
        let once = once(key).keep(HOUR);
        assert_eq!(begin(database, &once, "7"), Begun::First);
        match end {
            Some(true) => assert_eq!(finish(database, &once, "7"), Finished::Recorded),
            Some(false) => assert!(database.fail(&once, &pass("7")).unwrap()),
            None => {}
        }
        let error = database.begin(&once, &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        for said in ["\"nights\"", "\"days\"", "token 7"] {
            assert!(error.to_string().contains(said), "{error}");
        }
        let error = database.done(&once, other.name()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        // Not even where the numbers are the same.
        let same: Pass = "days:7".parse().unwrap();
        let finished = database.finish(&once, &same, b"").unwrap();
        assert_eq!(finished, Finished::NotBegun);
        assert!(!database.fail(&once, &same).unwrap());
    }
    assert_eq!(finish(database, &once("running"), "7"), Finished::Recorded);
    // Whose time is over belongs to nobody, and what is forgotten neither.
    age(database, HOUR);
    let due = once("done").keep(HOUR);
    assert_eq!(database.begin(&due, &other).unwrap(), Begun::First);
    assert_eq!(finish(database, &due, "7"), Finished::NotBegun);
    assert!(database.forget(&due));
    assert_eq!(begin(database, &due, "1"), Begun::First);
}

fn fails(database: &mut dyn Database) {
    let once = nightly();
    assert_eq!(begin(database, &once, "7"), Begun::First);
    assert!(database.fail(&once, &pass("7")).unwrap());
    assert!(matches!(begin(database, &once, "6"), Begun::Stale(_)));
    assert_eq!(finish(database, &once, "7"), Finished::NotBegun);
    assert_eq!(begin(database, &once, "7"), Begun::First);
    // Nothing of the attempt before is left.
    let record = &database.list("")[0];
    assert_eq!((record.state, record.ended), (State::Running, None));
    assert!(database.fail(&once, &pass("7")).unwrap());
    succeed(database, &once, "8");
    // A success is not taken back.
    assert!(!database.fail(&once, &pass("8")).unwrap());
    assert_eq!(done(begin(database, &once, "9")).result, b"8");
}

fn periods(database: &mut dyn Database) {
    let once = nightly().per(24 * HOUR);
    assert_eq!(begin(database, &once, "1"), Begun::First);
    // Begun at 02:00, ended at 02:10.
    age(database, HOUR / 6);
    assert_eq!(finish(database, &once, "1"), Finished::Recorded);
    // The other host's 02:00 is up to two hours later; and nobody's is at 23:00.
    age(database, 2 * HOUR);
    assert_eq!(done(begin(database, &once, "2")).result, b"1");
    age(database, 19 * HOUR);
    assert_eq!(done(begin(database, &once, "3")).result, b"1");
    // 02:00 of the next night: 23:50 after the end.
    age(database, 24 * HOUR - 21 * HOUR - HOUR / 6);
    assert_eq!(database.done(&once, &lock()).unwrap(), None);
    succeed(database, &once, "4");
    assert_eq!(done(begin(database, &once, "5")).result, b"4");
    // Who asks for no period is told of it whenever it was.
    age(database, 40 * HOUR);
    assert_eq!(done(begin(database, &nightly(), "6")).result, b"4");
    // After a failure the older ones stay shut out, though the last success is of another period.
    assert_eq!(begin(database, &once, "7"), Begun::First);
    assert!(database.fail(&once, &pass("7")).unwrap());
    assert!(matches!(begin(database, &once, "6"), Begun::Stale(_)));
    // From the start, though the run took five hours: due at 22 hours, which are 17 after the end.
    let long = self::once("long").per(24 * HOUR);
    assert_eq!(begin(database, &long, "1"), Begun::First);
    age(database, 5 * HOUR);
    assert_eq!(finish(database, &long, "1"), Finished::Recorded);
    age(database, 16 * HOUR);
    assert_eq!(done(begin(database, &long, "2")).result, b"1");
    age(database, HOUR);
    assert_eq!(begin(database, &long, "2"), Begun::First);
}

/// Beginning and the reason why not are two statements, and time goes on between them.
fn gets_due(database: &mut dyn Database) {
    let before = Duration::from_millis(30);
    for round in 0..20 {
        let once = once(&format!("round/{round}")).per(HOUR);
        succeed(database, &once, "1");
        age(database, once.window().unwrap() - before);
        loop {
            match begin(database, &once, "2") {
                Begun::First => break,
                Begun::Done(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn expires(database: &mut dyn Database) {
    let once = nightly().keep(24 * HOUR);
    assert_eq!(begin(database, &once, "9"), Begun::First);
    // One that is still at it after all that time finds its record.
    age(database, 100 * HOUR);
    assert_eq!(finish(database, &once, "9"), Finished::Recorded);
    age(database, 23 * HOUR);
    assert_eq!(done(begin(database, &once, "10")).result, b"9");
    let [record] = &database.list("")[..] else {
        panic!("no record");
    };
    let kept = record
        .expires
        .unwrap()
        .duration_since(record.ended.unwrap());
    let kept = kept.unwrap();
    assert!(kept.abs_diff(24 * HOUR) < HOUR / 60, "{kept:?}");
    age(database, HOUR);
    assert_eq!(database.done(&once, &lock()).unwrap(), None);
    assert_eq!(database.list(""), []);
    // As if there had never been one: an older token is no older than nothing.
    assert_eq!(begin(database, &once, "3"), Begun::First);
    assert_eq!(finish(database, &once, "9"), Finished::NotBegun);
    assert_eq!(finish(database, &once, "3"), Finished::Recorded);
    // One that crashed is forgotten, too, and one without an end is kept.
    assert_eq!(
        begin(database, &self::once("x").keep(HOUR), "7"),
        Begun::First
    );
    succeed(database, &self::once("y"), "7");
    age(database, 200 * HOUR);
    let kept: Vec<String> = database
        .list("")
        .into_iter()
        .map(|record| record.key)
        .collect();
    assert_eq!(kept, ["y"]);
}

fn clock_back(database: &mut dyn Database) {
    let once = nightly().per(24 * HOUR);
    succeed(database, &once, "1");
    database.age(-3_600_000);
    assert_eq!(done(begin(database, &once, "2")).age, Duration::ZERO);
}

fn lists(database: &mut dyn Database) {
    for key in ["b", "a/1", "a%", "A/2", "[ab]*", "ä"] {
        assert_eq!(begin(database, &once(key), "7"), Begun::First);
    }
    let mut keys = |prefix: &str| -> Vec<String> {
        let found = database.list(prefix);
        found.into_iter().map(|record| record.key).collect()
    };
    assert_eq!(keys(""), ["A/2", "[ab]*", "a%", "a/1", "b", "ä"]);
    assert_eq!(keys("a"), ["a%", "a/1"]);
    assert_eq!(keys("a%"), ["a%"]);
    assert_eq!(keys("[ab]*"), ["[ab]*"]);
    assert_eq!(keys("ä"), ["ä"]);
    assert_eq!(keys("%"), [""; 0]);
    let record = &database.list("b")[0];
    assert_eq!((&record.by, record.state), (&pass("7"), State::Running));
    assert_eq!((record.ended, record.expires), (None, None));

    assert!(database.forget(&once("b")));
    assert!(!database.forget(&once("b")));
    // Who was at it has no record to store a result in.
    assert_eq!(finish(database, &once("b"), "7"), Finished::NotBegun);
    assert_eq!(begin(database, &once("b"), "1"), Begun::First);
}
