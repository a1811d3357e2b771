"""A decision costs about the same whether a hundred wait or ten thousand. Counted, not timed."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from bench.decision import Crowd

ROUNDS = 150


class CountedInt(int):
    """A time that counts how often it is compared: what a heap does in C, no trace function sees."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedInt.compared += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        CountedInt.compared += 1
        return int.__eq__(self, other) is True

    __hash__ = int.__hash__

    def __add__(self, other: int) -> CountedInt:
        return CountedInt(int(self) + other)

    def __sub__(self, other: int) -> CountedInt:
        return CountedInt(int(self) - other)


class Opcodes:
    """Counts the instructions executed in the core while it is entered."""

    def __init__(self) -> None:
        self.executed = 0

    def __enter__(self) -> Opcodes:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "hivemind_trio" not in frame.f_code.co_filename:
            return None
        if event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode":
            self.executed += 1
        return self._trace


def cost(waiting: int) -> tuple[float, float]:
    """Instructions and comparisons per event."""
    crowd = Crowd(waiting, seed=1, clock=CountedInt)
    before = crowd.events
    CountedInt.compared = 0
    with Opcodes() as opcodes:
        for _ in crowd.rounds(ROUNDS):
            pass
    events = crowd.events - before
    return opcodes.executed / events, CountedInt.compared / events


@pytest.mark.slow
def test_a_decision_with_ten_thousand_waiting_costs_at_most_twice_one_with_a_hundred() -> None:
    few_instructions, few_comparisons = cost(100)
    many_instructions, many_comparisons = cost(10_000)

    assert few_instructions > 100, "something was counted"
    assert few_comparisons > 5, "something was counted"
    assert many_instructions <= 2 * few_instructions
    # Comparisons grow with the logarithm, which doubles from a hundred to ten thousand, and are few: a scan in C, which
    # executes no instruction that is counted above, would make them a hundred times as many.
    assert many_comparisons <= 3 * few_comparisons
