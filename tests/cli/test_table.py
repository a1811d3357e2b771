"""Tables of every command: cells stand under each other as a terminal shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hivemind_trio.cli.control.status import BUDGETS_SHOWN, fullest_budgets
from hivemind_trio.cli.table import aligned

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
