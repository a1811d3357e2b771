"""Tables of every command: cells stand under each other as a terminal shows them."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.cli.control.queue import advice_text
from hivemind_trio.cli.control.status import BUDGETS_SHOWN, fullest_budgets, lane_table
from hivemind_trio.cli.table import aligned, columns_wanted, fit, joined, table
from hivemind_trio.policy import width

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_wide_letters_take_two_columns() -> None:
    assert aligned([("規則", "1", "a"), ("rule-1", "22", "bc")], right=(1,)) == [
        ["規則  ", " 1", "a "],
        ["rule-1", "22", "bc"],
    ]


def test_what_would_act_on_the_terminal_is_shown_and_counts_as_it_is_shown() -> None:
    assert aligned([("\x1b[31m", "a"), ("sixsix", "b")]) == [["␛[31m ", "a"], ["sixsix", "b"]]


def account(number: int) -> dict[str, Any]:
    return {
        "budget": "day", "whose": f"caller-{number}", "allowance": "$1 per day", "share": number / 100, "held": 0,
        "resets_at": None,
    }  # fmt: skip


def test_a_picture_of_the_whole_has_the_fullest_accounts_only() -> None:
    lines = fullest_budgets([account(number) for number in range(BUDGETS_SHOWN + 3)], NOW).splitlines()

    assert len(lines) == 1 + BUDGETS_SHOWN + 1
    assert lines[1].split()[:2] == ["day", f"caller-{BUDGETS_SHOWN + 2}"]
    assert lines[-1] == "3 further accounts at 2% or less: `hivemind-trio budget`"


def test_a_few_accounts_are_all_shown() -> None:
    lines = fullest_budgets([account(number) for number in range(BUDGETS_SHOWN)], NOW).splitlines()

    assert len(lines) == 1 + BUDGETS_SHOWN


# ---- the width of a terminal ----

ROWS = [
    ["call", "agent", "model", "state", "next"],
    ["67c66b-362", "agent-with-a-long-name-29", "claude-sonnet-4-5-20250929", "waiting", ""],
    ["67c66b-363", "ci", "claude-opus-4-1", "in flight", ""],
]


def drawn(rows: list[list[str]]) -> list[str]:
    return ["  ".join(cells).rstrip() for cells in aligned(rows)]


def test_rows_that_fit_are_as_they_were() -> None:
    found = fit(ROWS, 90, least=["model"])

    assert (found.rows, found.gone, found.note) == (ROWS, (), "")


def test_what_is_empty_is_left_out_without_a_word_and_the_least_with_one() -> None:
    empty, least = fit(ROWS, 76, least=["model", "next"]), fit(ROWS, 50, least=["model", "next"])

    assert (empty.rows[0], empty.note) == (["call", "agent", "model", "state"], "")
    assert (least.rows[0], least.note) == (["call", "agent", "state"], "(too narrow for model: see --json)")


def test_of_the_columns_that_stay_the_widest_goes_on_below() -> None:
    found = fit(ROWS, 60, least=["next"], names=(0, 1))

    assert drawn(found.rows) == [
        "call        agent                      model       state",
        "67c66b-362  agent-with-a-long-name-29  claude-son  waiting",
        "                                       net-4-5-",
        "                                       20250929",
        "67c66b-363  ci                         claude-     in flight",
        "                                       opus-4-1",
    ]


CELLS = st.text("abcdef0123-", max_size=40)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=5), st.integers(50, 100), st.data())
def test_no_row_is_wider_and_nothing_that_is_shown_is_cut(
    cells: list[tuple[str, ...]], columns: int, data: st.DataObject
) -> None:
    head = ["first", "second", "third", "fourth"]
    least = data.draw(st.lists(st.sampled_from(head[1:]), unique=True))

    found = fit([head, *cells], columns, least=least)

    assert all(width(line) <= columns for line in drawn(found.rows))
    shown = {name: "".join(row[at] for row in found.rows[1:]) for at, name in enumerate(found.rows[0])}
    for at, name in enumerate(head):
        whole = "".join(row[at] for row in cells)
        assert shown.get(name) == whole or name in found.gone or (name in least and not whole)


def test_a_table_is_as_wide_as_the_terminal_that_it_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    with os.fdopen(leader), os.fdopen(follower, "w") as terminal, monkeypatch.context() as here:
        here.setattr(sys, "stdout", terminal)
        text = table(ROWS[0], ROWS[1:], least=["model", "next"])
        wanted = columns_wanted()

    assert wanted == 50
    assert max(map(width, text.splitlines())) <= 50
    assert text.endswith("(too narrow for model: see --json)\n")


def test_in_a_pipe_it_is_as_wide_as_it_comes_unless_columns_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table(ROWS[0], ROWS[1:], least=["model"])
    monkeypatch.setenv("COLUMNS", "50")

    assert max(map(width, whole.splitlines())) > 80
    assert max(map(width, table(ROWS[0], ROWS[1:], least=["next", "model"]).splitlines())) <= 50


def test_parts_of_a_head_go_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    assert joined(["hivemind", "team.hmp", "up 3 h", "process 4"]) == "hivemind  team.hmp\n  up 3 h  process 4"


@pytest.mark.parametrize(
    ("waits", "shown"),
    [
        ([], ""),
        ([("growth", 22)], "growth"),
        ([("growth", 20), ("retry", 2)], "growth 20, retry 2"),
        ([("growth", 1_500), ("retry", 9), ("lane-max", 4), ("turn", 1)], "growth 1,500, retry 9, others 5"),
    ],
)
def test_a_lane_says_what_its_calls_wait_for(waits: list[tuple[str, int]], shown: str) -> None:
    unknown = {"p50_at": None, "p90_at": None}
    lane = {"name": "default", "waiting": 22, "inflight": 3, "first": unknown, "last": unknown}
    text = lane_table([{**lane, "waits": [{"reason": reason, "n": n} for reason, n in waits]}], datetime.now(UTC))

    assert text.splitlines()[-1].split(maxsplit=3)[3:] == ([shown] if shown else [])


def test_a_proxy_of_an_older_version_is_shown_without_what_it_does_not_tell() -> None:
    unknown = {"p50_at": None, "p90_at": None}
    lane = {"name": "default", "waiting": 22, "inflight": 3, "first": unknown, "last": unknown}
    advice: dict[str, Any] = {
        "state": "ready", "text": "no", "at": None, "calls": 9, "span_s": 5.0, "tried": 1, "limits": 1,
        "lanes": [], "advice": [],
    }  # fmt: skip

    assert lane_table([lane], NOW).splitlines()[-1].split() == ["default", "22", "3"]
    assert "with 9 calls over 5.0 s; 1 of 1 limits" in advice_text(advice, NOW)
