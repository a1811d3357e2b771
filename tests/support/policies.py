"""Policies for tests, from their text: what a user writes."""

from __future__ import annotations

from functools import cache

from hivemind_trio.policy import MemoryFiles, Program, check


@cache
def compiled(text: str) -> Program:
    """The program of a policy without errors."""
    checked = check("test.hmp", MemoryFiles({"test.hmp": "hmp 1\n" + text}))
    assert checked.program is not None, [one.message for one in checked.diagnostics]
    return checked.program
