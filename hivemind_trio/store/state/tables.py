"""The tables of the state file. They are only ever added to: a newer version upgrades all older ones."""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x686D7073
"""`hmps`: what SQLite keeps in the head of the file, so that nobody else's database is taken for state."""

VERSION: Final = 3
"""`PRAGMA user_version`."""

_FIRST: Final = """
CREATE TABLE nodes (             -- one for each run of the proxy
    epoch INTEGER PRIMARY KEY,
    pid INTEGER NOT NULL,
    boot TEXT NOT NULL,          -- of the machine; empty: unknown
    generation INTEGER NOT NULL, -- the first log that is not folded into the totals
    began_wall_ns INTEGER NOT NULL,
    ended INTEGER NOT NULL       -- 1: in order
) STRICT;
CREATE TABLE spends (            -- settled, or charged after a crash
    account TEXT NOT NULL,       -- a JSON array: budget, per, partition, measure, window in ns, calendar;
                                 -- where they say something also month, time zone, name of the partition
    slot_ns INTEGER NOT NULL,    -- end of the slice of a sliding window, or of the calendar window; since 1970
    amount INTEGER NOT NULL,     -- millionths of a dollar, tokens or requests
    PRIMARY KEY (account, slot_ns)
) STRICT, WITHOUT ROWID;
CREATE TABLE chunks (            -- of the present run: credit that was drawn ahead of use
    account TEXT PRIMARY KEY,
    drawn INTEGER NOT NULL,
    settled INTEGER NOT NULL     -- of it
) STRICT, WITHOUT ROWID;
CREATE TABLE claims (            -- of calls in flight when the log was last folded
    call INTEGER NOT NULL,
    account TEXT NOT NULL,
    most INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    PRIMARY KEY (call, account)
) STRICT, WITHOUT ROWID;
CREATE TABLE shared (            -- the run that shared budgets with other nodes last; at most one row
    node TEXT NOT NULL,
    epoch INTEGER NOT NULL       -- its start, by the store of all nodes
) STRICT;
CREATE TABLE settled (           -- what that run has spent in all
    account TEXT PRIMARY KEY,
    amount INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE charges (           -- for what a run left open
    epoch INTEGER NOT NULL,      -- the run that found it
    account TEXT NOT NULL,
    amount INTEGER NOT NULL,
    calls INTEGER NOT NULL,      -- 0: credit of a machine that went down
    at_ns INTEGER NOT NULL,
    PRIMARY KEY (epoch, account)
) STRICT, WITHOUT ROWID;
CREATE TABLE keys (              -- secrets of this state: the journal alone says nothing of credentials
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE learned (           -- hints with their age
    pool TEXT NOT NULL,
    what TEXT NOT NULL,
    value TEXT NOT NULL,         -- JSON
    at_ns INTEGER NOT NULL,
    PRIMARY KEY (pool, what)
) STRICT, WITHOUT ROWID;
"""

LEASES: Final = """
CREATE TABLE fences (            -- highest fencing token of each resource; none is ever given again
    resource TEXT PRIMARY KEY,
    fence INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE leases (            -- in hand
    id TEXT PRIMARY KEY,
    lease TEXT NOT NULL          -- JSON; times on the wall clock, ns since 1970
) STRICT, WITHOUT ROWID;
"""

TABLES: Final = _FIRST + LEASES

UPGRADES: Final[dict[int, str]] = {
    1: "CREATE TABLE shared (node TEXT NOT NULL, epoch INTEGER NOT NULL) STRICT; "
    "CREATE TABLE settled (account TEXT PRIMARY KEY, amount INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
    2: LEASES,
}
"""Version -> the statements that make the next version of it."""
