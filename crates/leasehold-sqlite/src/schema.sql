-- One row per lock ever granted. It is never deleted and its token never lowered: tokens must rise for ever.
CREATE TABLE locks (
    name     TEXT PRIMARY KEY,
    token    INTEGER NOT NULL,  -- of the last grant
    rev      INTEGER NOT NULL,  -- rises with every change of the row
    clock    TEXT NOT NULL,     -- whose boot clock `ends` is read from: boot id / time namespace
    owner    TEXT,              -- who holds; NULL: free
    live     TEXT,              -- liveness file of the holder's process; NULL: the hold ends by time alone
    ends     INTEGER NOT NULL,  -- when the hold ends or ended, in nanoseconds of the boot clock
    span     INTEGER NOT NULL,  -- how much longer it had to go when the row was last written, in nanoseconds
    granted  INTEGER,           -- the wall clock's time of the grant in milliseconds, for showing
    identity TEXT               -- who holds, in JSON, for showing
) STRICT, WITHOUT ROWID;
CREATE INDEX locks_by_process ON locks (live) WHERE live IS NOT NULL;

-- Who waits. A new row's number is above all others', which is all the order needs.
CREATE TABLE waiters (
    seq      INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    owner    TEXT NOT NULL UNIQUE,
    live     TEXT NOT NULL,     -- liveness file of the waiter's process
    identity TEXT NOT NULL
) STRICT;
CREATE INDEX waiters_by_name ON waiters (name, seq);
CREATE INDEX waiters_by_process ON waiters (live);

-- Owners whose hold an operator took away and who have not asked since.
CREATE TABLE notices (
    owner    TEXT PRIMARY KEY,
    live     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Since when a row written by another boot clock has been seen unchanged, by ours.
CREATE TABLE observations (
    name     TEXT NOT NULL,
    clock    TEXT NOT NULL,
    token    INTEGER NOT NULL,
    rev      INTEGER NOT NULL,
    seen     INTEGER NOT NULL,
    PRIMARY KEY (name, clock)
) STRICT, WITHOUT ROWID;
