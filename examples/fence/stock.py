"""Takes pieces out of the stock that a database counts, and never more than there are.

    leasehold run stock -- python3 stock.py shop.db tea 3

The token of the lock goes into the transaction that writes. A process that is frozen past its time and goes on after
another one has been there changes nothing and exits 76. Python's own sqlite3 is all it takes,
and a table of the shop's: CREATE TABLE stock (item TEXT PRIMARY KEY, count INTEGER).
"""

import os
import sqlite3
import sys

TABLE = """
CREATE TABLE IF NOT EXISTS leasehold_fence (
    resource TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL CHECK (typeof(epoch) = 'integer' AND epoch BETWEEN 0 AND 4294967295),
    token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token >= 0)
)
"""

CHECK = """
INSERT INTO leasehold_fence (resource, epoch, token) VALUES (?, ?, ?)
ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, token = excluded.token
WHERE (leasehold_fence.epoch, leasehold_fence.token) <= (excluded.epoch, excluded.token)
"""

EPOCH = 0  # a setting; raised when the locks move to another store


class Stale(Exception):
    """A newer holder has been here."""


def take(database, token, item, pieces):
    """Takes so many pieces of an item; answers how many are left."""
    database.execute("PRAGMA synchronous = FULL")  # or a power cut could take the mark back
    database.execute(TABLE)
    database.execute("BEGIN IMMEDIATE")
    try:
        # First: what is read below can't change any more before the commit.
        if database.execute(CHECK, ("stock", EPOCH, token)).rowcount != 1:
            raise Stale(f"token {token} is stale")
        (left,) = database.execute("SELECT count FROM stock WHERE item = ?", (item,)).fetchone()
        if left < pieces:
            raise ValueError(f"only {left} left")
        database.execute("UPDATE stock SET count = ? WHERE item = ?", (left - pieces, item))
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise
    return left - pieces


def main(path, item, pieces):
    # Without an isolation level the transactions are the ones above.
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    try:
        left = take(database, int(os.environ["LEASEHOLD_TOKEN"]), item, int(pieces))
    except Stale as stale:
        print(stale, file=sys.stderr)
        return 76
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{left} left")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
