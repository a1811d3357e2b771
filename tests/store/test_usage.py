"""Sums of a journal, held against sums that are made call by call."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from hivemind_trio.store import UsageRow, usage_by
from hivemind_trio.store.journal.tables import TABLES, VERSION
from hivemind_trio.store.journal.usage_report import KEYS

MS: Final = 1_000_000
HOUR: Final = 3_600 * 10**9
WALL: Final = 1_800_000_000 * 10**9
KATHMANDU: Final = ZoneInfo("Asia/Kathmandu")
"""Its days begin at a quarter of an hour."""


@pytest.fixture
def journal() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(TABLES)
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.row_factory = sqlite3.Row
        yield database


def insert(database: sqlite3.Connection, table: str, **values: Any) -> None:
    """Insert a row; columns that are not named have a value of their type that no sum reads."""
    for column in database.execute(f"PRAGMA table_info({table})").fetchall():
        if column["notnull"]:
            values.setdefault(column["name"], 0 if column["type"] == "INTEGER" else "")
    places = ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})", tuple(values.values()))


def fill(database: sqlite3.Connection, chance: Random, calls: int) -> list[dict[str, Any]]:
    """Write calls of every kind; return each with its answer, its grants and its ends."""
    written = []
    for number in range(calls):
        key = {"session": chance.randint(1, 2), "call": number}
        call = {
            "wall_ns": WALL + chance.randrange(50) * HOUR // 4, "model": chance.choice(["m", "n", ""]),
            "job": chance.choice(["", "j", "k"]), "caller": chance.choice(["", "ci@1f", "bot"]),
            "credential": chance.choice(["", "6c78", "9490"]),
        }  # fmt: skip
        insert(database, "calls", **key, **call)
        answer: dict[str, Any] | None = None
        if chance.random() < 0.9:
            answer = {
                "agent": chance.choice(["", "ci", "unknown"]), "status": chance.choice([0, 200, 200, 429, 529]),
                "refused": int(chance.random() < 0.3), "reason": chance.choice(["none", "limits"]),
                "lane": chance.choice([None, "main"]), "waited_ns": chance.choice([None, 0, chance.randrange(10**10)]),
            }  # fmt: skip
            insert(database, "answers", **key, **answer)
        grants, ends = [], []
        for attempt in range(1, chance.choice([0, 1, 1, 1, 2, 3]) + 1):
            grants.append(
                {
                    "agent": chance.choice(["ci", "bot"]),
                    "team": chance.choice(["none", "core"]),
                    "model": chance.choice([None, "p"]),
                    "provider": chance.choice(["a", "b"]),
                    "lane": "main",
                }
            )
            insert(database, "grants", **key, attempt=attempt, **grants[-1])
            if chance.random() < 0.9:
                tokens = chance.choice([None, chance.randrange(1_000)])
                ends.append(
                    {
                        "tokens_in": chance.choice([None, tokens]),
                        "tokens_cache_read": tokens,
                        "tokens_cache_write": tokens,
                        "tokens_out": tokens,
                        "cost_microusd": chance.choice([None, chance.randrange(10**6)]),
                    }
                )
                insert(database, "ends", **key, attempt=attempt, **ends[-1])
        written.append({"call": call, "answer": answer, "grants": grants, "ends": ends})
    return written


def word(key: str, one: dict[str, Any]) -> str:
    call, answer, grants = one["call"], one["answer"] or {}, one["grants"]
    last = grants[-1] if grants else {}
    at = datetime.fromtimestamp(call["wall_ns"] / 1e9, KATHMANDU)
    words = {
        "agent": last.get("agent") or answer.get("agent") or "unknown",
        "team": last.get("team"),
        "model": last.get("model") or call["model"],
        "provider": last.get("provider"),
        "lane": last.get("lane") or answer.get("lane"),
        "session": call["job"],
        "caller": call["caller"],
        "credential": call["credential"],
        "day": at.strftime("%Y-%m-%d"),
        "hour": at.strftime("%Y-%m-%d %H:00"),
        "status": str(answer["status"]) if answer else None,
        "reason": answer.get("reason"),
    }
    return words[key] or "none"


def summed(ones: list[dict[str, Any]]) -> dict[str, int]:
    """Return the sums of some calls, made one by one."""
    told = [end for one in ones for end in one["ends"] if end["tokens_out"] is not None]
    refused = [bool(one["answer"] and one["answer"]["refused"]) for one in ones]
    served = [one["answer"] or {} for one, is_refused in zip(ones, refused, strict=True) if not is_refused]
    waits = sorted((each.get("waited_ns") or 0) for each in served)
    return {
        "calls": len(ones),
        "rejected": sum(refused),
        "failed": sum("status" in each and (each["status"] == 0 or each["status"] >= 400) for each in served),
        "attempts": sum(len(one["ends"]) for one in ones),
        "input": sum(end["tokens_in"] or 0 for end in told),
        "cache_read": sum(end["tokens_cache_read"] for end in told),
        "cache_write": sum(end["tokens_cache_write"] for end in told),
        "output": sum(end["tokens_out"] for end in told),
        "cost_microusd": sum(end["cost_microusd"] or 0 for end in told),
        "unpriced": sum(end["cost_microusd"] is None for end in told),
        "waited_ns": sum(waits),
        "p50_ms": waits[min(len(waits) - 1, len(waits) // 2)] // MS if waits else 0,
        "p95_ms": waits[min(len(waits) - 1, int(0.95 * len(waits)))] // MS if waits else 0,
    }


def shown(row: UsageRow) -> dict[str, int]:
    names = (
        "calls", "rejected", "failed", "attempts", "input", "cache_read", "cache_write", "output", "cost_microusd",
        "unpriced", "waited_ns",
    )  # fmt: skip
    quantiles = {"p50_ms": row.wait_quantile_ns(0.5) // MS, "p95_ms": row.wait_quantile_ns(0.95) // MS}
    return {name: getattr(row, name) for name in names} | quantiles


@pytest.mark.parametrize("key", KEYS)
def test_sums_are_those_of_the_calls_one_by_one(journal: sqlite3.Connection, key: str) -> None:
    written = fill(journal, Random(key), 200)
    since_ns, until_ns = WALL + 5 * HOUR // 4, WALL + 40 * HOUR // 4
    expected: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in written:
        if since_ns <= one["call"]["wall_ns"] < until_ns:
            expected[word(key, one)].append(one)

    rows = usage_by(journal, key, since_ns, until_ns, KATHMANDU)

    assert {row.key: shown(row) for row in rows} == {name: summed(ones) for name, ones in expected.items()}


def test_waits_are_of_calls_that_were_not_rejected(journal: sqlite3.Connection) -> None:
    for number in range(100):
        is_refused = number < 98
        insert(journal, "calls", session=1, call=number, wall_ns=WALL)
        insert(
            journal, "answers", session=1, call=number, status=429 if is_refused else 200, refused=is_refused,
            waited_ns=0 if is_refused else 60_000 * MS,
        )  # fmt: skip

    (row,) = usage_by(journal, "lane", None, None, UTC)

    assert (row.calls, row.rejected, row.wait_quantile_ns(0.5)) == (100, 98, 60_000 * MS)
