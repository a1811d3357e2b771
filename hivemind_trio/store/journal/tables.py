"""The tables of a journal. They are only ever added to: a newer version reads all older ones.

`at_ns` is nanoseconds since the session began, `wall_ns` since 1970. A call is known by its session and its number.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x686D706A
"""`hmpj`: what SQLite keeps in the head of the file, so that nobody else's database is taken for a journal."""

VERSION: Final = 11
"""`PRAGMA user_version`."""

_SINCE_4: Final = """
CREATE TABLE header_sets (       -- headers and metadata that calls had in common
    header_set INTEGER PRIMARY KEY,
    headers TEXT NOT NULL,       -- an object; no credentials, and long values cut
    meta TEXT NOT NULL           -- the same
);
CREATE TABLE events (            -- with `serve --record`: what the scheduler was told, and its commands
    session INTEGER NOT NULL,
    number INTEGER NOT NULL,     -- from 1, without gaps
    at_ns INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL,          -- MessagePack, as the next two
    turns BLOB NOT NULL,         -- ends of calendar windows that it asked for
    commands BLOB NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TABLE policy_files (      -- of the policies of recorded events
    hash TEXT PRIMARY KEY,
    path TEXT NOT NULL,
    files TEXT NOT NULL,         -- an object: path -> text
    host TEXT                    -- NULL: the address is that of the policy
);
"""
"""Tables that version 4 added."""

_SINCE_5: Final = """
CREATE TABLE plans (             -- windows of an account's plan, when an answer tells news of it
    session INTEGER NOT NULL,
    call INTEGER NOT NULL,       -- whose answer told
    at_ns INTEGER NOT NULL,
    provider TEXT NOT NULL,
    account TEXT NOT NULL,       -- as `credential` of `calls`; empty: the provider's key
    window TEXT NOT NULL,        -- as the provider calls it
    span TEXT NOT NULL,          -- session, week or month
    models TEXT NOT NULL,        -- a word of the models that it counts; empty: all
    used INTEGER NOT NULL,       -- millionths
    resets_ns INTEGER,           -- at; NULL: not told
    overage INTEGER NOT NULL     -- 1: the account pays beyond its plan
);
CREATE INDEX plans_of ON plans (session, provider, account, at_ns);
"""
"""Tables that version 5 added."""

TABLES: Final = f"""
CREATE TABLE sessions (          -- one for each run of the proxy
    session INTEGER PRIMARY KEY,
    began_wall_ns INTEGER NOT NULL,
    version TEXT NOT NULL,       -- of hivemind-trio
    ended_ns INTEGER,            -- NULL: it runs, or did not end in order
    pid INTEGER                  -- since version 3: of the process
);
CREATE TABLE policies (          -- in force from then on
    session INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    hash TEXT NOT NULL
);
CREATE TABLE calls (             -- as they arrived, and as the policy saw them
    session INTEGER NOT NULL,
    call INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    wall_ns INTEGER NOT NULL,
    apis TEXT NOT NULL,          -- likeliest first
    method TEXT NOT NULL,
    path TEXT NOT NULL,          -- without the query
    model TEXT NOT NULL,
    stream INTEGER NOT NULL,
    tools INTEGER NOT NULL,
    images INTEGER NOT NULL,
    tokens_in INTEGER NOT NULL,  -- estimated
    tokens_max_out INTEGER NOT NULL,
    cost_microusd INTEGER NOT NULL,
    hour INTEGER NOT NULL,       -- in the policy's time zone
    weekday INTEGER NOT NULL,
    token_agent TEXT,            -- whose token it carried
    claimed TEXT,                -- who it said it was
    headers TEXT NOT NULL,       -- until version 3, as in `header_sets`; since then empty
    meta TEXT NOT NULL,          -- the same
    caller TEXT NOT NULL,        -- to be fair to; behind the `@` 32 bits of a keyed hash of its credential
    job TEXT NOT NULL,
    prefix TEXT NOT NULL,        -- equal where prompts begin alike
    credential TEXT NOT NULL,    -- beginning of a keyed hash, as log and status name it
    again TEXT NOT NULL,         -- equal where a client has sent the same once more
    patience_ns INTEGER,
    needs_slot INTEGER NOT NULL,
    header_set INTEGER,          -- since version 4
    minute INTEGER,              -- since version 6; of `hour`
    date TEXT,                   -- since version 6; in the policy's time zone
    session_context INTEGER,     -- since version 7, as the next: of its client's session; NULL: it is of none
    session_turns INTEGER,
    session_cost_microusd INTEGER,
    session_age_ns INTEGER,
    client_address TEXT,         -- since version 8, if a condition of the policy reads it
    tokens_counted INTEGER,      -- since version 10; NULL: input was estimated from bytes
    counted_by TEXT,             -- since version 10: `tokenizer` or `provider`
    PRIMARY KEY (session, call)
) WITHOUT ROWID;
CREATE TABLE deciders (          -- setting -> who decided it, as many as there were
    decided INTEGER PRIMARY KEY,
    by TEXT NOT NULL
);
CREATE TABLE grants (            -- its turn has come
    session INTEGER NOT NULL,
    call INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    waited_ns INTEGER NOT NULL,  -- in all, without earlier attempts
    reason TEXT NOT NULL,        -- what it waited for last
    agent TEXT NOT NULL,
    team TEXT NOT NULL,
    lane TEXT NOT NULL,
    priority INTEGER NOT NULL,
    provider TEXT NOT NULL,
    limits TEXT,                 -- the glob of the `limits` block that it counts against
    model TEXT,                  -- sent instead of the one that was asked for
    instead_of TEXT,             -- the provider that it should have gone to
    tags TEXT NOT NULL,
    budgets TEXT NOT NULL,
    decided INTEGER NOT NULL,
    slot INTEGER NOT NULL,       -- 0: it needs none
    account TEXT                 -- since version 9: whose key it has, if that shares the limits of `provider`
);
CREATE INDEX grants_of ON grants (session, call);
CREATE TABLE ends (              -- of attempts
    session INTEGER NOT NULL,
    call INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    status INTEGER NOT NULL,     -- 0: there was no answer
    failure TEXT,
    committed INTEGER NOT NULL,  -- the agent has had something of it
    first_byte_ns INTEGER,
    silence_ns INTEGER,
    retry_after_ns INTEGER,
    tokens_in INTEGER,           -- neither read from a cache nor written to one
    tokens_cache_read INTEGER,
    tokens_cache_write INTEGER,
    tokens_out INTEGER,
    exact INTEGER,               -- 0: counted as it went by
    cost_microusd INTEGER,       -- since version 3; NULL: the tokens or their price are not known
    unretried TEXT               -- since version 11: why it failed and was the last; NULL: it did not, or was not
);
CREATE INDEX ends_of ON ends (session, call);
CREATE TABLE refusals (          -- by the scheduler or the policy
    session INTEGER NOT NULL,
    call INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    waited_ns INTEGER NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    retry_after_ns INTEGER,
    agent TEXT,
    team TEXT,
    lane TEXT,
    decided INTEGER
);
CREATE INDEX refusals_of ON refusals (session, call);
CREATE TABLE departures (        -- of agents whose call was waiting
    session INTEGER NOT NULL,
    call INTEGER NOT NULL,
    at_ns INTEGER NOT NULL
);
CREATE INDEX departures_of ON departures (session, call);
CREATE TABLE answers (           -- what the agent had in the end
    session INTEGER NOT NULL,
    call INTEGER,                -- NULL: it was turned away before it was a call
    name TEXT NOT NULL,          -- as in `x-hivemind-call`
    at_ns INTEGER NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    agent TEXT NOT NULL,
    status INTEGER NOT NULL,     -- 0: it hung up before that
    refused INTEGER NOT NULL,    -- the answer is ours
    reason TEXT NOT NULL,
    upstream_error TEXT,
    attempts INTEGER NOT NULL,
    bytes_out INTEGER NOT NULL,
    lane TEXT,                   -- since version 2; NULL: none was decided
    waited_ns INTEGER            -- since version 2
);
CREATE INDEX answers_of ON answers (session, call);
CREATE INDEX answers_named ON answers (name);
CREATE INDEX calls_at ON calls (wall_ns);
{_SINCE_4}{_SINCE_5}"""

HISTORY: Final = """
CREATE VIEW history AS           -- a line for each call, for people
    SELECT strftime('%Y-%m-%d %H:%M:%S', calls.wall_ns / 1000000000, 'unixepoch') AS utc,
        answers.name AS name, coalesce(grants.agent, refusals.agent, answers.agent) AS agent, calls.caller AS caller,
        coalesce(grants.lane, refusals.lane, answers.lane) AS lane,
        coalesce(grants.account, grants.provider) AS provider,
        coalesce(grants.model, calls.model) AS model,
        coalesce(grants.waited_ns, refusals.waited_ns, answers.waited_ns) / 1000000 AS waited_ms,
        answers.attempts AS attempts,
        (ends.at_ns - grants.at_ns) / 1000000 AS took_ms, answers.status AS status,
        coalesce(answers.reason, refusals.reason, grants.reason) AS reason,
        coalesce(ends.tokens_in + ends.tokens_cache_read + ends.tokens_cache_write, calls.tokens_in) AS tokens_in,
        ends.tokens_out AS tokens_out
    FROM calls
    LEFT JOIN grants ON grants.rowid =
        (SELECT max(rowid) FROM grants AS each WHERE each.session = calls.session AND each.call = calls.call)
    LEFT JOIN ends ON ends.rowid =
        (SELECT max(rowid) FROM ends AS each WHERE each.session = calls.session AND each.call = calls.call)
    LEFT JOIN refusals ON refusals.session = calls.session AND refusals.call = calls.call
    LEFT JOIN answers ON answers.session = calls.session AND answers.call = calls.call
    ORDER BY calls.session, calls.call;
"""

UPGRADES: Final = {
    1: f"ALTER TABLE answers ADD COLUMN lane TEXT; ALTER TABLE answers ADD COLUMN waited_ns INTEGER; "
    f"DROP VIEW history; {HISTORY}",
    2: "ALTER TABLE sessions ADD COLUMN pid INTEGER; ALTER TABLE ends ADD COLUMN cost_microusd INTEGER; "
    "CREATE INDEX answers_named ON answers (name); CREATE INDEX calls_at ON calls (wall_ns);",
    3: f"ALTER TABLE calls ADD COLUMN header_set INTEGER; {_SINCE_4}",
    4: _SINCE_5,
    5: "ALTER TABLE calls ADD COLUMN minute INTEGER; ALTER TABLE calls ADD COLUMN date TEXT;",
    6: "ALTER TABLE calls ADD COLUMN session_context INTEGER; ALTER TABLE calls ADD COLUMN session_turns INTEGER; "
    "ALTER TABLE calls ADD COLUMN session_cost_microusd INTEGER; ALTER TABLE calls ADD COLUMN session_age_ns INTEGER;",
    7: "ALTER TABLE calls ADD COLUMN client_address TEXT;",
    10: "ALTER TABLE ends ADD COLUMN unretried TEXT;",
    9: "ALTER TABLE calls ADD COLUMN tokens_counted INTEGER; ALTER TABLE calls ADD COLUMN counted_by TEXT;",
    8: f"DROP VIEW history; ALTER TABLE grants ADD COLUMN account TEXT; {HISTORY}",
}
"""Version -> the statements that make the next version of it."""
