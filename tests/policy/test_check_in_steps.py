"""A check of a large policy says often how far it is, and is not interrupted by the garbage collector."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from hivemind_trio.model import Api, Request
from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.policy.compile.codegen import RULES_IN_FUNCTION  # so that the text has more of them

RULES = 300
TEXT = "hmp 1\nprovider anthropic { }\n" + "".join(
    f'rule r{number} when meta.job == "{number}" {{ priority {number % 9} }}\n' for number in range(RULES)
)


@pytest.fixture
def collected() -> Iterator[list[int]]:
    """The generations that were collected since."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def test_no_garbage_is_looked_for_within_a_check(collected: list[int]) -> None:
    within: list[int] = []

    def progress(doing: str, done: int, of: int, /) -> None:
        within.extend(collected)

    assert gc.isenabled()
    collected.clear()
    assert check("a.hmp", MemoryFiles({"a.hmp": TEXT}), progress).program is not None
    assert within == []
    assert gc.isenabled()


def test_a_check_that_is_given_up_leaves_the_collector_as_it_was() -> None:
    def progress(doing: str, done: int, of: int, /) -> None:
        raise InterruptedError

    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            with pytest.raises(InterruptedError):
                check("a.hmp", MemoryFiles({"a.hmp": TEXT}), progress)
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


def test_every_rule_is_a_step_of_compiling() -> None:
    told: Counter[str] = Counter()
    check("a.hmp", MemoryFiles({"a.hmp": TEXT}), lambda doing, done, of: told.update([doing]))

    assert told["compiling"] >= RULES


def test_many_rules_are_compiled_in_parts() -> None:
    told: list[tuple[int, int]] = []
    text = TEXT + "".join(f"rule s{number} when stream {{ priority 1 }}\n" for number in range(2 * RULES_IN_FUNCTION))

    def progress(doing: str, done: int, of: int, /) -> None:
        if doing == "compiling parts":
            told.append((done, of))

    program = check("a.hmp", MemoryFiles({"a.hmp": text}), progress).program

    assert told == [(0, 3), (1, 3), (2, 3)]
    assert program is not None
    last = Request(apis=(Api.ANTHROPIC,), meta={"job": f"{RULES - 1}"})
    assert program.decide(last).decided["priority"].name == f"r{RULES - 1}"
    streamed = Request(apis=(Api.ANTHROPIC,), stream=True)
    assert program.decide(streamed).decided["priority"].name == "s0"
