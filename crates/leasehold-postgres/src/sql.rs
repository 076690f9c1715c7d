//! The statements.

use crate::keys::Space;

/// The table with the counter of every name and its last holder. A name's row is written by each grant and by nothing
/// else, but for `broken`: the token of the last hold that an operator took away, whose holder may look for it after the
/// next grant.
pub(crate) const SCHEMA: &str = "\
CREATE SCHEMA IF NOT EXISTS leasehold;
CREATE TABLE IF NOT EXISTS leasehold.locks (
    name text COLLATE \"C\" PRIMARY KEY,
    token bigint NOT NULL,
    key text COLLATE \"C\" NOT NULL,
    pid integer NOT NULL,
    since timestamptz NOT NULL,
    ttl_ms bigint NOT NULL,
    broken bigint,
    note text NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS locks_key ON leasehold.locks (key);
CREATE INDEX IF NOT EXISTS locks_broken ON leasehold.locks (name) WHERE broken IS NOT NULL;
";

/// What a session is asked when it begins: its process, whether its server is a standby, since when the server remembers
/// locks, how long a session may be idle, what a commit waits for, and how many locks there can be.
///
/// After the crash of a process the server forgets its locks without being started anew; then it forgets its statistics,
/// too.
pub(crate) const HELLO: &str = "\
SELECT pg_backend_pid(), pg_is_in_recovery(),
    (extract(epoch FROM greatest(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter)))
        * 1000000)::int8,
    coalesce((SELECT setting::int8 FROM pg_settings WHERE name = 'idle_session_timeout'), 0),
    current_setting('synchronous_commit'),
    current_setting('max_locks_per_transaction')::int8
        * (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8)";

/// The holds of this session that an operator took away.
pub(crate) const BROKEN: &str = "\
SELECT key, token FROM leasehold.locks
WHERE broken IS NOT NULL AND broken = token AND pid = pg_backend_pid()";

/// Marks a hold as taken away.
pub(crate) const BREAK: &str =
    "UPDATE leasehold.locks SET broken = token WHERE name = $1::text AND token = $2::int8";

/// Ends a session, where its only lock is this one.
pub(crate) const END: &str = "\
SELECT pg_terminate_backend($1::int4)
WHERE (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1::int4) = 1";

/// The names of what a session holds.
pub(crate) const HOLDS: &str = "\
SELECT coalesce(r.name, 'a lock that isn''t leasehold''s') FROM pg_locks l
LEFT JOIN leasehold.locks r ON r.pid = l.pid AND r.key = format('%s.%s.%s', l.classid, l.objid, l.objsubid)
WHERE l.locktype = 'advisory' AND l.granted AND l.pid = $1::int4 ORDER BY 1";

/// The number that the server makes of a name.
pub(crate) const HASH: &str = "SELECT hashtext($1::text)::int8";

/// What a row says of a hold: token, wall clock's time of the grant in microseconds, TTL in milliseconds, note.
const ROW: &str = "r.token, (extract(epoch FROM r.since) * 1000000)::int8, r.ttl_ms, r.note";
/// Whether a row is of the hold whose session has the lock: of several names with one key the last one granted, since the
/// server remembers ($1, in microseconds).
const IS_HOLD: &str = "\
r.since >= 'epoch'::timestamptz + $1::int8 * interval '1 microsecond'
    AND NOT EXISTS (SELECT FROM leasehold.locks o WHERE o.key = r.key AND o.pid = r.pid AND o.since > r.since)";
const HERE: &str = "l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Who has a key ($3 to $5) and how many wait for it, and the row of a name ($2) with whether it is the holder's.
pub(crate) fn inspect() -> String {
    format!(
        "SELECT (SELECT min(l.pid) FROM locks l WHERE l.granted), (SELECT count(*) FROM locks l WHERE NOT l.granted),
            r.broken, coalesce(r.pid IN (SELECT l.pid FROM locks l WHERE l.granted) AND {IS_HOLD}, false), {ROW}
        FROM (SELECT) one LEFT JOIN leasehold.locks r ON r.name = $2::text"
    )
    .replace("FROM locks l", &format!("FROM ({}) l", of_key(3)))
}

/// As [`inspect`], where there is no table: who has a key ($1 to $3) and how many wait for it.
pub(crate) fn inspect_bare() -> String {
    format!(
        "SELECT min(l.pid) FILTER (WHERE l.granted), count(*) FILTER (WHERE NOT l.granted) FROM ({}) l",
        of_key(1)
    )
}

fn of_key(first: u8) -> String {
    let (second, third) = (first + 1, first + 2);
    format!(
        "SELECT l.pid, l.granted FROM pg_locks l WHERE {HERE} AND l.classid::int8 = ${first}::int8
            AND l.objid::int8 = ${second}::int8 AND l.objsubid = ${third}::int2"
    )
}

/// The holds whose names begin so ($2).
pub(crate) fn list() -> String {
    format!(
        "SELECT r.name, {ROW} FROM leasehold.locks r JOIN pg_locks l
            ON l.pid = r.pid AND r.key = format('%s.%s.%s', l.classid, l.objid, l.objsubid)
        WHERE {HERE} AND l.granted AND starts_with(r.name, $2::text) AND {IS_HOLD} ORDER BY r.name"
    )
}

/// Tries a lock ($1), and counts the grant: name, key, TTL in milliseconds, note, and since when the server remembers.
/// Answers whether it was granted, the token, and how long the server's forgetting keeps everybody out: then it wasn't tried.
///
/// That what is read of other rows may be older than the lock does no harm: a row from before the server forgot is
/// written over only when its time is over.
pub(crate) fn attempt(space: Space) -> String {
    grant(&format!("pg_try_advisory_lock({})", arguments(space)))
}

/// Counts a grant that was waited for; as [`attempt`], without trying.
pub(crate) fn count() -> String {
    // The number of the key is named, so that both take the same.
    grant("$1::int8 IS NOT NULL")
}

fn grant(got: &str) -> String {
    format!(
        "WITH up AS MATERIALIZED (SELECT 'epoch'::timestamptz + $6::int8 * interval '1 microsecond' AS at),
        back AS MATERIALIZED (
            SELECT max(up.at + o.ttl_ms * interval '1 millisecond') AS until
            FROM leasehold.locks o, up WHERE o.key = $3::text AND o.since < up.at),
        tried AS MATERIALIZED (
            SELECT CASE WHEN back.until > clock_timestamp() THEN NULL ELSE {got} END AS got, back.until FROM back),
        counted AS (
            INSERT INTO leasehold.locks AS l (name, token, key, pid, since, ttl_ms, note)
            SELECT $2::text, 1, $3::text, pg_backend_pid(), clock_timestamp(), $4::int8, $5::text
            FROM tried WHERE tried.got
            ON CONFLICT (name) DO UPDATE SET token = l.token + 1, key = excluded.key, pid = excluded.pid,
                since = excluded.since, ttl_ms = excluded.ttl_ms, note = excluded.note
            RETURNING l.token)
        SELECT tried.got, (SELECT token FROM counted),
            ceil(extract(epoch FROM tried.until - clock_timestamp()) * 1000)::int8 FROM tried"
    )
}

/// Gives a lock ($1) back; answers whether the session had it.
pub(crate) fn unlock(space: Space) -> String {
    format!("SELECT pg_advisory_unlock({})", arguments(space))
}

/// A key ($1) as the functions take it.
fn arguments(space: Space) -> &'static str {
    match space {
        Space::One => "$1::int8",
        Space::Two => "($1::int8 >> 32)::int4, (($1::int8 << 32) >> 32)::int4",
    }
}

/// Waits for a lock. Its key is no parameter, as nothing is to be sent before it.
pub(crate) fn wait(key: crate::keys::Key) -> String {
    let number = key.number;
    match key.space {
        Space::One => format!("SELECT pg_advisory_lock(({number})::int8)"),
        Space::Two => {
            let (first, second) = (number >> 32, number << 32 >> 32);
            format!("SELECT pg_advisory_lock(({first})::int4, ({second})::int4)")
        }
    }
}
