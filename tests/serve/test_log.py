"""What an operator reads: said when it first happens, counted while it goes on."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
import trio
import trio.testing

from hivemind_trio.serve.log import QUIET_S, LogFormat, Lossy, Notices, make_log

from .conftest import Said


async def test_a_notice_is_said_once_and_its_repeats_are_counted(
    said: Said, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    notices = Notices(said.log)
    nursery.start_soon(notices.run)

    for _ in range(100):
        notices.say("provider refuses", provider="sim", status=429)
        await trio.sleep(QUIET_S / 200)
    first = said.lines
    await trio.sleep(2 * QUIET_S)

    assert first == [{"event": "provider refuses", "level": "warning", "provider": "sim", "status": 429}]
    assert said.lines[1:] == [{**first[0], "again": 99}]


async def test_after_a_quiet_minute_it_is_news_again(
    said: Said, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    notices = Notices(said.log)
    nursery.start_soon(notices.run)

    notices.say("provider refuses", provider="sim", status=429)
    await trio.sleep(2 * QUIET_S)
    notices.say("provider refuses", provider="sim", status=529)

    assert [(one["status"], "again" in one) for one in said.lines] == [(429, False), (529, False)]


async def test_what_never_stops_is_said_about_once_a_minute(
    said: Said, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    notices = Notices(said.log)
    nursery.start_soon(notices.run)

    for _ in range(600):
        notices.say("provider refuses", provider="sim", status=429)
        await trio.sleep(1)
    notices.flush(everything=True)

    spoken = said.lines
    assert 10 <= len(spoken) <= 22  # ten minutes: it is said anew, and its repeats are, once a minute each
    assert sum(1 for one in spoken if "again" not in one) + sum(one.get("again", 0) for one in spoken) == 600


async def test_different_things_do_not_hide_each_other(said: Said, autojump_clock: trio.testing.MockClock) -> None:
    notices = Notices(said.log)
    spoken: list[tuple[str, dict[str, Any]]] = [
        ("provider refuses", {"provider": "a", "status": 429}),
        ("provider refuses", {"provider": "a", "status": 529}),
        ("provider refuses", {"provider": "b", "status": 429}),
        ("calls refused", {"lane": "a", "reason": "denied"}),
        ("calls refused", {"lane": "a", "reason": "queue-full"}),
    ]

    for _ in range(2):
        for event, fields in spoken:
            notices.say(event, **fields)

    assert said.lines == [{"event": event, "level": "warning", **fields} for event, fields in spoken]


async def test_the_detail_of_a_notice_does_not_make_it_another(
    said: Said, autojump_clock: trio.testing.MockClock
) -> None:
    notices = Notices(said.log)
    for number in range(3):
        notices.say("an attempt crashed", level="error", detail=f"ValueError: {number}", lane=None)

    notices.flush(everything=True)

    first = {"event": "an attempt crashed", "level": "error", "detail": "ValueError: 0"}
    assert said.lines == [first, {**first, "detail": "ValueError: 2", "again": 2}]


async def test_at_the_end_counts_are_said_and_not_kept(said: Said, autojump_clock: trio.testing.MockClock) -> None:
    notices = Notices(said.log)
    for _ in range(2):
        notices.say("calls refused", lane="fleet", reason="queue-full")

    notices.flush(everything=True)
    notices.flush(everything=True)

    assert [one.get("again") for one in said.lines] == [None, 1]


def test_a_line_of_json_begins_with_when_how_bad_and_what() -> None:
    stream = io.StringIO()
    log = make_log(Lossy(stream), form=LogFormat(json=True), color=False)

    log.info("serving", address="http://127.0.0.1:1", lanes=2)
    log.debug("not for operators")

    (line,) = stream.getvalue().splitlines()
    assert list(json.loads(line)) == ["timestamp", "level", "event", "address", "lanes"]


@pytest.mark.parametrize("color", [False, True])
def test_a_line_for_people_is_one_line_and_coloured_only_if_asked(color: bool) -> None:
    stream = io.StringIO()

    make_log(Lossy(stream), form=LogFormat(json=False), color=color).warning("policy kept", why="it has errors")

    written = stream.getvalue()
    assert written.count("\n") == 1
    assert ("\x1b[" in written) is color
    plain = re.sub(r"\x1b\[\d+m", "", written)
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \[warning *\] policy kept why='it has errors'\n", plain)


def test_what_a_caller_calls_itself_does_not_move_the_operators_cursor() -> None:
    stream = io.StringIO()
    log = make_log(Lossy(stream), form=LogFormat(json=False), color=False)

    log.info("call", caller="\x1b[2J\x9bmoved\u202egnp", model="m" * 100_000, tags=("\x1b]0;title\x07",))

    line = stream.getvalue()
    assert line.count("\n") == 1
    assert all(char.isprintable() for char in line.rstrip("\n"))
    assert "[2J" in line
    assert len(line) < 5_000


def test_an_object_a_line_keeps_the_words_as_they_came() -> None:
    stream = io.StringIO()
    log = make_log(Lossy(stream), form=LogFormat(json=True), color=False)

    log.info("call", caller="\x1b[2J")

    assert "\x1b" not in stream.getvalue()
    assert json.loads(stream.getvalue())["caller"] == "\x1b[2J"
