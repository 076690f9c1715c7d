//! The statements. All stand alone: none begins a transaction, as in one the server wouldn't end a silent session.

/// What the table is made by that the tokens are counted in, a statement on each line. A user who may make it does so on
/// first use; for others somebody else runs this, and grants them the use of it.
///
/// A name's row is written by each grant and by nothing else, but for `broken`: the token of the last hold that an
/// operator took away, whose holder may look for it after the next grant.
pub const SCHEMA: &str = "\
CREATE DATABASE IF NOT EXISTS leasehold;
CREATE TABLE IF NOT EXISTS leasehold.locks (\
name VARBINARY(200) NOT NULL PRIMARY KEY, token BIGINT UNSIGNED NOT NULL, lock_name VARBINARY(64) NOT NULL, \
session BIGINT UNSIGNED NOT NULL, server_start BIGINT NOT NULL, since_us BIGINT NOT NULL, ttl_ms BIGINT NOT NULL, \
broken BIGINT UNSIGNED NULL, note TEXT NOT NULL, KEY locks_broken (broken)) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;
";

/// Whether the table is there.
pub(crate) const IS_THERE: &str = "SELECT 1 FROM leasehold.locks LIMIT 0";

/// The session's number at the server itself: some proxies answer what stands alone.
pub(crate) const BEAT: &str = "SELECT CONNECTION_ID() + 0";

/// Now, in the server's microseconds.
const NOW_US: &str = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)";
/// Until when a name is kept back: to the second the server says when it started, so nobody gets one in that second, and a
/// grant's second is of one start only. Then the time of a hold from before must be over.
const UNTIL_MS: &str = "(:start + 1) * 1000";
const BEFORE: &str = "FROM leasehold.locks o WHERE o.name = :name AND o.server_start <> :start";

/// Tries a lock and counts the grant; one row is written then, or two where one is written over. Nothing is written where
/// it isn't granted.
///
/// That what is read of the row may be older than the lock does no harm: a row from before the start is written over only
/// when its time is over.
pub(crate) fn attempt() -> String {
    grant("GET_LOCK(:lock, 0) = 1")
}

/// Counts a grant that was waited for; as [`attempt`], without trying.
pub(crate) fn count() -> String {
    grant("IS_USED_LOCK(:lock) = CONNECTION_ID()")
}

fn grant(got: &str) -> String {
    format!(
        "INSERT INTO leasehold.locks (name, token, lock_name, session, server_start, since_us, ttl_ms, note)
        SELECT :name, LAST_INSERT_ID(1), :lock, CONNECTION_ID(), :start, {NOW_US}, :ttl, :note FROM DUAL
        WHERE {UNTIL_MS} <= {NOW_US} / 1000
            AND NOT EXISTS (SELECT 1 {BEFORE} AND {UNTIL_MS} + o.ttl_ms > {NOW_US} / 1000) AND {got}
        ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(leasehold.locks.token + 1), lock_name = :lock,
            session = CONNECTION_ID(), server_start = :start, since_us = {NOW_US}, ttl_ms = :ttl, note = :note"
    )
}

/// How many milliseconds a name is kept back for.
pub(crate) fn kept_back() -> String {
    format!(
        "SELECT CAST(CEILING({UNTIL_MS} + COALESCE(MAX(o.ttl_ms), 0) - {NOW_US} / 1000) AS SIGNED) {BEFORE}"
    )
}

/// Gives a lock back; answers whether the session had it.
pub(crate) const UNLOCK: &str = "SELECT RELEASE_LOCK(:lock)";

/// Waits for a lock, for so many seconds at most.
pub(crate) fn wait(lock: &str, seconds: u64) -> String {
    format!("SELECT {}{seconds})", waiting(lock))
}

/// How the statement of who waits for a lock is known in the server's list of them.
pub(crate) fn waiting(lock: &str) -> String {
    let quoted = lock.replace('\\', "\\\\").replace('\'', "''");
    format!("GET_LOCK('{quoted}', ")
}

/// The holds of this session that an operator took away.
pub(crate) const BROKEN: &str = "\
SELECT name, token FROM leasehold.locks
WHERE broken IS NOT NULL AND broken = token AND session = CONNECTION_ID() AND server_start = :start";

/// The token of the hold of a name that an operator took away.
pub(crate) const IS_BROKEN: &str = "SELECT broken FROM leasehold.locks WHERE name = :name";

/// Marks a hold as taken away.
pub(crate) const BREAK: &str =
    "UPDATE leasehold.locks SET broken = token WHERE name = :name AND token = :token";

/// The names of what a session holds.
pub(crate) const HOLDS: &str = "\
SELECT name FROM leasehold.locks
WHERE session = :session AND server_start = :start AND IS_USED_LOCK(lock_name) = session ORDER BY name";

/// What a row says of a hold.
const ROW: &str = "r.token, r.since_us, r.ttl_ms, r.note";

/// Who has a lock, and the row of a name with whether it is the holder's.
pub(crate) fn inspect() -> String {
    format!(
        "SELECT IS_USED_LOCK(:lock), r.broken, r.session = IS_USED_LOCK(:lock) AND r.server_start = :start, {ROW}
        FROM (SELECT 1) one LEFT JOIN leasehold.locks r ON r.name = :name"
    )
}

/// As [`inspect`], where there is no table.
pub(crate) const INSPECT_BARE: &str = "SELECT IS_USED_LOCK(:lock)";

/// How many wait for a lock, in the server's list of sessions.
pub(crate) fn waiters(sessions: &str) -> String {
    format!("SELECT COUNT(*) FROM {sessions} WHERE STATE = 'User lock' AND LOCATE(:wait, INFO) > 0")
}

/// How many replicas follow, as far as this user is shown them.
pub(crate) fn replicas(sessions: &str) -> String {
    format!("SELECT COUNT(*) FROM {sessions} WHERE COMMAND LIKE 'Binlog Dump%'")
}

/// The holds whose names begin so.
pub(crate) fn list() -> String {
    format!(
        "SELECT r.name, {ROW} FROM leasehold.locks r
        WHERE r.server_start = :start AND LEFT(r.name, LENGTH(:prefix)) = :prefix
            AND r.session = IS_USED_LOCK(r.lock_name) ORDER BY r.name"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_quoted_where_it_stands_in_a_statement() {
        assert_eq!(wait("a'b\\", 5), "SELECT GET_LOCK('a''b\\\\', 5)");
    }

    #[test]
    fn each_line_of_the_schema_is_a_statement() {
        assert!(SCHEMA.lines().all(|line| line.ends_with(';')));
        assert_eq!(SCHEMA.lines().count(), 2);
    }
}
