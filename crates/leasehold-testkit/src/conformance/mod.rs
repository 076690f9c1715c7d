//! The suite that every store runs.
//!
//! A store's `tests/conformance.rs` is a test target with `harness = false` and this for its `main`:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use leasehold_testkit::conformance::{self, TestStore};
//!
//! struct Mine;
//!
//! impl TestStore for Mine {
//!     fn url(&self, case: &str) -> String {
//!         format!("mine://127.0.0.1/?prefix={case}:")
//!     }
//!
//!     fn stopped_write_is_an_outage(&self) -> bool {
//!         false
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     conformance::main(&[("", &Mine)])
//! }
//! ```
//!
//! Where all cases use one server, [`Shared`] is such a store.
//!
//! What a case expects follows from what the store says of itself ([`Capabilities`]): what it can do must
//! work, and what it can't do must be refused as documented. No case is skipped. Lower bounds on time are
//! exact; upper bounds are generous, because the suite is about safety and not about speed.

use std::process::ExitCode;
use std::time::Duration;

use leasehold::store::Capabilities;
use leasehold::{Client, Guard, Inspection, Lock};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::process::Worker;
use crate::protocol::Terms;
use crate::tools::{boot, elapsed};
use crate::worker;

mod cancelling;
mod dying;
mod excluding;
mod guarding;
mod losing;
mod naming;
mod operating;
mod releasing;
mod settings;
mod shared;
mod tokens;
mod waiting;

pub use shared::Shared;

/// What a case or a step of one comes to. Broken promises are panics, with the line that found them.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long a case may take at most: a lock that is never granted must fail its case, not hang it.
const CASE_MAX: Duration = Duration::from_secs(90);
/// How much longer than promised anything may take, on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(2);
/// How many cases run at once: they mostly wait.
const CASES_AT_ONCE: usize = 6;

/// A store under test.
pub trait TestStore: Sync {
    /// The URL of an empty store for one case: a store of its own, or a prefix of its own on a shared one.
    /// `case` is unique among the cases and made of letters, digits, `_` and `-`.
    fn url(&self, case: &str) -> String;

    /// Whether a process that is stopped in the middle of a write keeps the others from the store until it goes
    /// on or dies. Then they get an error in time, and no grant.
    fn stopped_write_is_an_outage(&self) -> bool;

    /// How long a hold of `ttl` keeps others out at most when its process is gone or stands still.
    fn frees_dead_within(&self, ttl: Duration) -> Duration {
        ttl
    }

    /// Stops the servers that the cases started, when every case is over: a static is never dropped, and no server
    /// must outlive its tests.
    fn stop(&self) {}
}

/// Runs the suite on each of these stores, with the arguments of `cargo test`. The names of the cases begin with the
/// store's, unless that is empty.
///
/// One program for all servers of a kind takes much less time to build than one for each.
pub fn main(stores: &[(&str, &'static dyn TestStore)]) -> ExitCode {
    if let Ok(url) = std::env::var(worker::MARKER) {
        return match worker::main(&url) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CASES_AT_ONCE);
    let mut failed = false;
    for (name, store) in stores {
        // One after the other: servers that start are slow, and would disturb another store's last cases and their own.
        failed |= libtest_mimic::run(&arguments, cases(name, *store)).has_failed();
        store.stop();
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Names every case once, by area.
macro_rules! cases {
    ($($area:ident { $($case:ident,)+ })+) => {
        fn cases(name: &str, store: &'static dyn TestStore) -> Vec<Trial> {
            let full = |case: &str| if name.is_empty() { case.to_owned() } else { format!("{name}::{case}") };
            vec![$($(
                Trial::test(
                    full(concat!(stringify!($area), "::", stringify!($case))),
                    move || run(store, concat!(stringify!($area), "-", stringify!($case)), $area::$case),
                ),
            )+)+]
        }
    };
}

cases! {
    excluding {
        no_two_of_64_tasks_in_4_processes_hold_at_once,
        two_tasks_of_one_process_exclude_each_other,
        two_processes_exclude_each_other,
        prefixes_keep_namespaces_apart,
    }
    waiting {
        try_on_a_held_lock_is_busy_and_leaves_nothing,
        wait_of_zero_is_a_try,
        timed_wait_ends_busy_within_its_bound,
        blocked_acquire_gets_the_lock_after_its_release,
        every_waiter_of_4_processes_is_woken,
        no_wake_up_is_lost_between_look_and_wait,
        no_wake_up_is_lost_on_a_busy_runtime,
        waiters_are_served_in_order_where_promised,
        nobody_overtakes_a_waiter_where_order_is_promised,
    }
    tokens {
        rise_over_release_and_drop,
        rise_over_expiry,
        rise_over_break,
        rise_over_reconnection,
        rise_over_a_killed_holder,
    }
    losing {
        expired_holder_stops_believing_before_the_next_grant,
        extended_holder_stops_believing_before_the_next_grant,
        expired_holder_is_told_before_the_next_grant,
        stale_owner_changes_nothing_of_the_newer_hold,
        expired_hold_is_not_revived,
        stopped_holder_knows_on_waking,
        holder_that_blocks_its_runtime_keeps_the_lock,
        renewed_hold_outlives_its_ttl,
        max_hold_ends_a_renewed_hold,
    }
    dying {
        killed_holder_frees_the_lock,
        killed_waiter_is_passed_over,
        stopped_waiter_is_passed_over_and_never_granted_late,
        process_stopped_at_any_moment_frees_the_lock_or_is_an_outage,
    }
    cancelling {
        try_of_a_free_lock_dropped_at_every_poll_leaves_nothing,
        try_of_a_held_lock_dropped_at_every_poll_leaves_nothing,
        acquire_of_a_free_lock_dropped_at_every_poll_leaves_nothing,
        acquire_of_a_held_lock_dropped_at_every_poll_leaves_nothing,
        acquire_dropped_at_every_poll_of_its_hand_over_leaves_nothing,
        release_dropped_at_every_poll_still_releases,
        extend_dropped_at_every_poll_keeps_the_hold,
    }
    releasing {
        late_renewal_does_not_resurrect,
        look_at_a_hold_given_back_finds_it_over,
        guard_dropped_outside_a_runtime_releases,
        guard_dropped_on_another_thread_releases,
        guard_dropped_in_runtime_shutdown_releases,
        close_waits_for_background_releases,
        hold_at_least_keeps_others_out_after_release,
        hold_at_least_keeps_others_out_after_drop,
        hold_at_least_outlives_its_process,
    }
    guarding {
        run_returns_what_the_work_made,
        run_drops_the_work_at_the_loss,
        with_lock_runs_under_the_lock_or_not_at_all,
        extend_lasts_at_least_that_long_and_no_shorter,
        extend_after_the_loss_is_refused,
    }
    naming {
        child_held_never_delays_its_parent,
        names_that_look_alike_are_different_locks,
        names_that_break_the_rules_are_refused,
    }
    operating {
        inspect_shows_holder_queue_and_last_token,
        list_shows_held_locks_of_a_prefix,
        break_tells_the_holder_and_frees_the_lock,
        break_of_another_token_changes_nothing,
        break_of_a_free_lock_finds_it_free,
    }
    settings {
        ttl_out_of_bounds_is_refused_with_the_bounds,
        note_is_shown_and_a_long_one_refused,
    }
}

/// Runs one case on a runtime of its own.
fn run<F>(
    store: &'static dyn TestStore,
    case: &str,
    run: impl FnOnce(Bench) -> F,
) -> Result<(), Failed>
where
    F: Future<Output = Outcome>,
{
    let url = store.url(case);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome: Outcome = runtime.block_on(async {
        let all = async {
            let bench = Bench::at(url, store).await?;
            run(bench).await
        };
        tokio::time::timeout(CASE_MAX, all)
            .await
            .unwrap_or_else(|_| Err(format!("not done after {CASE_MAX:?}").into()))
    });
    outcome.map_err(|error| Failed::from(error.to_string()))
}

/// What every case has at hand: a store of its own.
pub(crate) struct Bench {
    pub(crate) url: String,
    pub(crate) store: &'static dyn TestStore,
    pub(crate) client: Client,
    pub(crate) can: Capabilities,
}

impl Bench {
    async fn at(url: String, store: &'static dyn TestStore) -> Outcome<Self> {
        let client = leasehold::connect(&url).await?;
        Ok(Self {
            url,
            store,
            can: client.info().capabilities,
            client,
        })
    }

    /// What a hold that was taken for `ttl` can be extended by: for long, where the store can.
    pub(crate) fn extension(&self, ttl: Duration) -> Duration {
        if self.can.extends { LONG } else { ttl }
    }

    /// A client with a connection of its own.
    pub(crate) async fn other(&self) -> Outcome<Client> {
        Ok(leasehold::connect(&self.url).await?)
    }

    /// A client on a connection of its own that puts `prefix` before every name.
    pub(crate) async fn prefixed(&self, prefix: &str) -> Outcome<Client> {
        let url = match self.url.split_once("prefix=") {
            Some((before, rest)) => {
                let (own, after) = rest.split_at(rest.find('&').unwrap_or(rest.len()));
                format!("{before}prefix={own}{prefix}{after}")
            }
            None => {
                let joint = if self.url.contains('?') { '&' } else { '?' };
                format!("{}{joint}prefix={prefix}", self.url)
            }
        };
        Ok(leasehold::connect(&url).await?)
    }

    pub(crate) async fn worker(&self) -> Outcome<Worker> {
        Worker::start(&self.url).await
    }

    /// This TTL, or the store's shortest where that is longer.
    pub(crate) fn ttl(&self, millis: u64) -> Duration {
        Duration::from_millis(millis).max(self.can.ttl_min)
    }

    /// How long a hold of `ttl` may keep others out when its process is gone or stands still.
    pub(crate) fn dead(&self, ttl: Duration) -> Duration {
        self.store.frees_dead_within(ttl) + SLACK
    }

    /// The lock `name` with a TTL that no case waits for: what ends such a hold is not its time.
    pub(crate) fn lock(&self, name: &str) -> Outcome<Lock> {
        Ok(self.client.lock(name)?.ttl(LONG.max(self.can.ttl_min)))
    }

    /// The lock `name` on these terms.
    pub(crate) fn on(&self, name: &str, terms: Terms) -> Outcome<Lock> {
        Ok(terms.lock(&self.client, name)?)
    }

    /// Waits until nobody holds `name` and nobody waits for it.
    pub(crate) async fn free_within(&self, name: &str, bound: Duration) -> Outcome<Inspection> {
        self.inspected(name, bound, |seen| {
            seen.holder.is_none() && seen.waiters.is_empty()
        })
        .await
    }

    /// Waits until `wanted` holds of what `inspect` shows.
    pub(crate) async fn inspected(
        &self,
        name: &str,
        bound: Duration,
        wanted: impl Fn(&Inspection) -> bool,
    ) -> Outcome<Inspection> {
        let since = boot();
        loop {
            let seen = self.client.inspect(name).await?;
            if wanted(&seen) {
                return Ok(seen);
            }
            assert!(elapsed(since) < bound, "after {bound:?} still {seen:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until `count` wait for `name`; on a store without a queue, a while.
    pub(crate) async fn queued(&self, name: &str, count: usize) -> Outcome {
        if self.can.ordered {
            self.inspected(name, SLACK * 5, |seen| seen.waiters.len() == count)
                .await?;
        } else {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }
}

/// A TTL that no case waits for.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Takes a lock that must be free.
pub(crate) async fn take(lock: &Lock) -> Outcome<Guard> {
    match lock.try_acquire().await? {
        Some(guard) => Ok(guard),
        None => Err(format!("\"{}\" was to be free and is busy", lock.name()).into()),
    }
}

/// Asserts that a lock is held by somebody else.
pub(crate) async fn assert_busy(lock: &Lock) -> Outcome {
    let got = lock.try_acquire().await?;
    assert!(got.is_none(), "\"{}\" was to be busy: {got:?}", lock.name());
    Ok(())
}
