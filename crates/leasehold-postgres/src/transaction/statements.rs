//! The statements of locks inside transactions.

use std::time::Duration;

use crate::keys::Key;

/// Since when the server remembers locks.
macro_rules! up {
    () => {
        "greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())"
    };
}

/// A condition, and what its case comes to: an error that says why. A snapshot from before the wait doesn't show what the
/// holder before has written, and a standby's locks are its own.
macro_rules! unfit {
    () => {
        "pg_is_in_recovery() OR current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
        THEN ('leasehold: no lock inside a transaction that is ' || current_setting('transaction_isolation')
            || ', or on a standby; begin it as READ COMMITTED, on the primary')::boolean"
    };
}

/// The statement of `$1`, a name, up to what takes the lock where nobody is to be kept out until `back.until`.
macro_rules! of_name {
    () => {
        concat!(
            "WITH key AS MATERIALIZED (
    SELECT ('x' || left(encode(sha256(convert_to($1::text, 'UTF8')), 'hex'), 16))::bit(64)::int8 AS number),
back AS MATERIALIZED (
    SELECT max(up.at + o.ttl_ms * interval '1 millisecond') AS until
    FROM key, leasehold.locks o, (SELECT ",
            up!(),
            " AS at) up
    WHERE o.since < up.at AND o.key = format('%s.%s.1', number >> 32 & 4294967295, number & 4294967295))
SELECT CASE
    WHEN ",
            unfit!()
        )
    };
}

/// How the counter of a name rises, after the name, the key's text and a condition.
macro_rules! count {
    () => {
        "ON CONFLICT (name) DO UPDATE SET token = l.token + 1, key = excluded.key, pid = excluded.pid,
    since = excluded.since, ttl_ms = excluded.ttl_ms, note = excluded.note
RETURNING l.token"
    };
}

/// For drivers of other makes: takes the lock of the name `$1`, a text, if it is free, and answers whether it was, as
/// [`TransactionLocks::try_acquire`](super::TransactionLocks::try_acquire) does. The key is that of `key=sha256`; to share
/// it with what others run, another expression goes in the place of its first line's.
///
/// It takes the table of [`SCHEMA`](crate::SCHEMA).
pub const TRY_ACQUIRE: &str = concat!(
    of_name!(),
    "
    WHEN back.until > clock_timestamp() THEN false
    ELSE pg_try_advisory_xact_lock(key.number) END AS acquired
FROM key, back"
);

/// As [`TRY_ACQUIRE`], waiting for the lock as long as that takes, or as `lock_timeout` and `statement_timeout` let it.
pub const ACQUIRE: &str = concat!(
    of_name!(),
    "
    WHEN pg_sleep(coalesce(extract(epoch FROM back.until - clock_timestamp()), 0)) IS NULL THEN NULL
    ELSE pg_advisory_xact_lock(key.number) IS NOT NULL END AS acquired
FROM key, back"
);

/// For drivers of other makes: counts the token of the name `$1`, a text, in a transaction that has its lock by the key of
/// `key=sha256`. One that hasn't gets no row.
pub const TOKEN: &str = concat!(
    "WITH key AS MATERIALIZED (
    SELECT ('x' || left(encode(sha256(convert_to($1::text, 'UTF8')), 'hex'), 16))::bit(64)::int8 AS number)
INSERT INTO leasehold.locks AS l (name, token, key, pid, since, ttl_ms, note)
SELECT $1::text, 1, format('%s.%s.1', number >> 32 & 4294967295, number & 4294967295), 0, clock_timestamp(), 0, ''
FROM key WHERE pg_try_advisory_xact_lock(key.number)
",
    count!()
);

/// Whether there is a table.
pub(super) const TABLE: &str = "SELECT to_regclass('leasehold.locks') IS NOT NULL";
/// Begins a wait that can be undone.
pub(super) const SAVE: &str = "SAVEPOINT leasehold_wait;
    SELECT set_config('leasehold.lock_timeout', current_setting('lock_timeout'), true)";
/// Ends it, with what it has brought.
pub(super) const KEEP: &str = "\
    SELECT set_config('lock_timeout', current_setting('leasehold.lock_timeout'), true);
    RELEASE SAVEPOINT leasehold_wait";
/// Ends it as if nothing had been.
pub(super) const UNDO: &str =
    "ROLLBACK TO SAVEPOINT leasehold_wait; RELEASE SAVEPOINT leasehold_wait";

/// Tries a lock; answers whether it was free, since when the server remembers, and the database.
pub(super) fn attempt(key: Key) -> String {
    take(&format!("pg_try_advisory_xact_lock({})", key.arguments()))
}

/// As [`attempt`], waiting for it.
pub(super) fn wait(key: Key) -> String {
    take(&format!(
        "pg_advisory_xact_lock({}) IS NOT NULL",
        key.arguments()
    ))
}

/// As [`wait`], for so long at most.
pub(super) fn wait_within(key: Key, most: Duration) -> String {
    // Zero would be without an end, and it is a number of 32 bits. A part of a millisecond is waited for, too.
    let most = most.as_nanos().div_ceil(1_000_000).clamp(1, 0x7fff_ffff);
    format!("SET LOCAL lock_timeout = {most}; {}", wait(key))
}

fn take(lock: &str) -> String {
    format!(
        "SELECT CASE WHEN {} ELSE {lock} END, extract(epoch FROM {}), current_database()",
        unfit!(),
        up!()
    )
}

/// For how many milliseconds somebody may still believe to have a lock that the server has forgotten; and something, if
/// there is any such lock.
pub(super) fn held_back(key: Key) -> String {
    format!(
        "WITH old AS (
            SELECT o.key, up.at + o.ttl_ms * interval '1 millisecond' AS until
            FROM leasehold.locks o, (SELECT {} AS at) up WHERE o.since < up.at)
        SELECT (SELECT ceil(extract(epoch FROM max(until) - clock_timestamp()) * 1000)::int8 FROM old
                WHERE key = '{}' AND until > clock_timestamp()),
            (SELECT 1 FROM old WHERE until > clock_timestamp() LIMIT 1)",
        up!(),
        key.text()
    )
}

/// Counts the token of a name ($1); answers it where the lock is the transaction's.
pub(super) fn count(key: Key) -> String {
    format!(
        "INSERT INTO leasehold.locks AS l (name, token, key, pid, since, ttl_ms, note)
        SELECT $1::text, 1, '{}', 0, clock_timestamp(), 0, '' WHERE pg_try_advisory_xact_lock({}) {}",
        key.text(),
        key.arguments(),
        count!()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_never_shorter_than_asked_for() {
        for (nanos, millis) in [(0, 1), (299_000_001, 300), (300_000_000, 300)] {
            let statement = wait_within(Key::one(1), Duration::from_nanos(nanos));
            let bound = format!("SET LOCAL lock_timeout = {millis};");
            assert!(statement.starts_with(&bound), "{statement}");
        }
    }
}
