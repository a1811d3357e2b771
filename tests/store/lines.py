"""Lines of a journal for tests: calls that were granted, without a proxy."""

from __future__ import annotations

import sqlite3
from typing import Any, final

import attrs

SECOND_NS = 10**9


@final
@attrs.define
class JournalLine:
    """A provider's line in a journal."""

    database: sqlite3.Connection
    session: int = 1
    _number: int = 1_000

    def arrived(self, at_s: float, caller: str = "unknown", *, wall_s: float = 0) -> int:
        """Write the arrival of a call, and return its number."""
        self._number += 1
        self._insert("calls", at_ns=at_s, wall_ns=wall_s or at_s, caller=caller, call=self._number)
        return self._number

    def granted(self, at_s: float, lasted_s: float | None, agent: str, **fields: Any) -> int:
        """Write a call that waited for `waited_s` and whose only attempt took so long; return its number."""
        waited_s = fields.pop("waited_s", 0)
        call = self.arrived(at_s - waited_s, fields.pop("caller", agent))
        given = {"team": "none", "lane": "default", "provider": "sim", "account": None, "priority": 0, "slot": 1}
        grant = {"call": call, "attempt": 1, "at_ns": at_s, "waited_ns": waited_s, "agent": agent}
        self._insert("grants", **grant, **(given | fields))
        if lasted_s is not None:
            self._insert("ends", call=call, attempt=1, at_ns=at_s + lasted_s)
        return call

    def _insert(self, table: str, **fields: Any) -> None:
        """Write a row; what is not named is 0 or empty, and NULL where that is possible."""
        for name, value in fields.items():
            fields[name] = round(value * SECOND_NS) if name.endswith("_ns") else value
        fields["session"] = self.session
        for column in self.database.execute(f"PRAGMA table_info({table})"):
            if column[3] and column[1] not in fields:
                fields[column[1]] = "" if column[2] == "TEXT" else 0
        marks = ", ".join(f":{name}" for name in fields)
        self.database.execute(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})", fields)
