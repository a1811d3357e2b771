"""Trouble of a file that several parts of the proxy write: told once, and over when it is over for all."""

from __future__ import annotations

from hivemind_trio.serve.state import StateTrouble


def test_the_trouble_of_several_writers_is_told_once_and_lasts_until_all_can_write() -> None:
    told: list[str] = []
    trouble = StateTrouble(told.append)
    ledger, leases = trouble.of("ledger"), trouble.of("leases")

    ledger("read-only")
    leases("read-only")
    ledger("")
    ledger("read-only")
    ledger("")
    assert told == ["read-only"]

    leases("")
    leases("full")
    assert told == ["read-only", "", "full"]
