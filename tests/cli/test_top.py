"""Pictures of `hivemind-trio top` on terminals of any size."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.cli.control.top import RESTORED, Screen, frame
from hivemind_trio.cli.control.words import cropped, fitted, span
from hivemind_trio.policy import width

BLOCKS = [
    "hivemind-trio 0.2.0  team.hmp 96dfe5ad  up 3 h 12 min\n! circuit of `sim` is open\n",
    "",
    "lane   calls  waiting for\nbatch     14  limits\n",
]


@given(st.lists(st.text(max_size=60), max_size=8), st.integers(0, 100), st.integers(0, 30))
def test_no_line_is_wider_and_no_picture_higher_than_the_terminal(texts: list[str], columns: int, rows: int) -> None:
    lines = frame(texts, columns, rows)

    assert len(lines) <= rows
    assert all(width(line) <= columns for line in lines)
    assert not any(char < " " or char == "\x7f" for line in lines for char in line)


def test_blocks_are_a_line_apart_and_those_without_rows_are_left_out() -> None:
    assert frame(BLOCKS, 80, 24) == [
        "hivemind-trio 0.2.0  team.hmp 96dfe5ad  up 3 h 12 min", "! circuit of `sim` is open", "",
        "lane   calls  waiting for", "batch     14  limits",
    ]  # fmt: skip
    assert frame(BLOCKS, 14, 2) == ["hivemind-trio…", "! circuit of …"]


def test_a_line_that_fits_is_as_it_was() -> None:
    assert cropped("12345", 5) == "12345"
    assert cropped("漢字漢字", 5) == "漢字…"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ("5", "1234…\n漢字\n"),
        ("6", "123456\n漢字\n"),
        *((unusable, "123456\n漢字") for unusable in ("", "0", "-5", "many")),
    ],
)
def test_columns_of_the_environment_crop_words(columns: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    assert fitted("123456\n漢字") == shown


def test_a_sentence_goes_on_below_and_a_row_of_a_table_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "16")

    assert (
        fitted("no call of agent ci waits\nlane   waiting  first") == "no call of agent\n  ci waits\nlane   waiting …\n"
    )


def test_spans_have_two_units_at_most() -> None:
    assert [span(seconds) for seconds in (None, 0.04, 9.94, 41, 190, 3_600, 11_520, 187_200, 86_400)] == [
        "", "0.0 s", "9.9 s", "41 s", "3 min 10 s", "1 h", "3 h 12 min", "2 d 4 h", "1 d",
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_is_remembered_where_python_drops_what_its_handler_raises(
    number: signal.Signals, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> None:
        with Screen() as screen:
            screen.begin()
            with suppress(KeyboardInterrupt):  # as a destructor does
                signal.raise_signal(number)
            assert screen.signalled == number
        sys.exit(0)

    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        shown()

    assert ended.value.code == status
    assert signal.getsignal(number) is before
    assert capsys.readouterr().out.endswith(RESTORED)


def test_an_interrupt_ends_the_picture_quietly() -> None:
    with Screen() as screen:
        screen.begin()
        signal.raise_signal(signal.SIGINT)
    assert screen.signalled == signal.SIGINT


def test_an_interrupt_before_the_first_picture_ends_it_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    pictures = 0
    with Screen() as screen:
        signal.raise_signal(signal.SIGINT)
        screen.begin()
        pictures += 1
    assert pictures == 0
    assert capsys.readouterr().out.endswith(RESTORED)
