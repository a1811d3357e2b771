"""Tables of every command: cells stand under each other as a terminal shows them."""

from __future__ import annotations

from hivemind_trio.cli.table import aligned


def test_wide_letters_take_two_columns() -> None:
    assert aligned([("規則", "1", "a"), ("rule-1", "22", "bc")], right=(1,)) == [
        ["規則  ", " 1", "a "],
        ["rule-1", "22", "bc"],
    ]


def test_what_would_act_on_the_terminal_is_shown_and_counts_as_it_is_shown() -> None:
    assert aligned([("\x1b[31m", "a"), ("sixsix", "b")]) == [["␛[31m ", "a"], ["sixsix", "b"]]
