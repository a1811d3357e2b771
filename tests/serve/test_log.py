"""What an operator reads: said when it first happens, counted while it goes on."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
import trio
import trio.testing

from hivemind_trio.model import Reason
from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve.events import (
    AttemptCrashed,
    CallEnded,
    CallsRejected,
    JournalOpened,
    Notice,
    PolicyRejected,
    ProviderErrorReturned,
    RateLimited,
    values,
)
from hivemind_trio.serve.log import QUIET_S, LogFormat, Lossy, Notices, make_log

from .conftest import Said


def ended(**facts: Any) -> CallEnded:
    return CallEnded(record=CallRecord(id="b-1", status=200, rejected=False, reason=Reason.NONE, **facts))


async def test_a_notice_is_said_once_and_its_repeats_are_counted(
    said: Said, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    notices = Notices(said.log)
    nursery.start_soon(notices.run)

    for _ in range(100):
        notices.say(RateLimited(provider="sim", status=429))
        await trio.sleep(QUIET_S / 200)
    first = said.lines
    await trio.sleep(2 * QUIET_S)

    assert first == [{"event": "rate_limited", "level": "warning", "provider": "sim", "status": 429}]
    assert said.lines[1:] == [{**first[0], "repeats": 99}]


async def test_after_a_quiet_minute_it_is_news_again(
    said: Said, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    notices = Notices(said.log)
    nursery.start_soon(notices.run)

    notices.say(RateLimited(provider="sim", status=429))
    await trio.sleep(2 * QUIET_S)
    notices.say(ProviderErrorReturned(provider="sim", status=529))

    assert [(one["status"], "repeats" in one) for one in said.lines] == [(429, False), (529, False)]


async def test_what_never_stops_is_said_about_once_a_minute(
    said: Said, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    notices = Notices(said.log)
    nursery.start_soon(notices.run)

    for _ in range(600):
        notices.say(RateLimited(provider="sim", status=429))
        await trio.sleep(1)
    notices.flush(everything=True)

    spoken = said.lines
    assert 10 <= len(spoken) <= 22  # ten minutes: it is said anew, and its repeats are, once a minute each
    assert sum(1 for one in spoken if "repeats" not in one) + sum(one.get("repeats", 0) for one in spoken) == 600


async def test_different_things_do_not_hide_each_other(said: Said, autojump_clock: trio.testing.MockClock) -> None:
    notices = Notices(said.log)
    spoken: list[Notice] = [
        ProviderErrorReturned(provider="a", status=503),
        ProviderErrorReturned(provider="a", status=529),
        ProviderErrorReturned(provider="b", status=503),
        RateLimited(provider="a", status=429),
        CallsRejected(lane="a", reason=Reason.DENIED),
        CallsRejected(lane="a", reason=Reason.QUEUE_FULL),
    ]

    for _ in range(2):
        for event in spoken:
            notices.say(event)

    assert said.lines == [{"event": event.name, "level": "warning", **values(event)} for event in spoken]


async def test_the_detail_of_a_notice_does_not_make_it_another(
    said: Said, autojump_clock: trio.testing.MockClock
) -> None:
    notices = Notices(said.log)
    for number in range(3):
        notices.say(AttemptCrashed(error=f"ValueError: {number}"))

    notices.flush(everything=True)

    first = {"event": "attempt_crashed", "level": "error", "error": "ValueError: 0"}
    assert said.lines == [first, {**first, "error": "ValueError: 2", "repeats": 2}]


async def test_at_the_end_counts_are_said_and_not_kept(said: Said, autojump_clock: trio.testing.MockClock) -> None:
    notices = Notices(said.log)
    for _ in range(2):
        notices.say(CallsRejected(lane="fleet", reason=Reason.QUEUE_FULL))

    notices.flush(everything=True)
    notices.flush(everything=True)

    assert [one.get("repeats") for one in said.lines] == [None, 1]


def test_a_line_of_json_begins_with_when_how_bad_and_what() -> None:
    stream = io.StringIO()
    log = make_log(Lossy(stream), form=LogFormat(json=True), color=False)

    log.emit(JournalOpened(file="team.journal", session=2, calls_before=9))

    (line,) = stream.getvalue().splitlines()
    assert list(json.loads(line)) == ["timestamp", "level", "event", "file", "session", "calls_before"]


@pytest.mark.parametrize("color", [False, True])
def test_a_line_for_people_is_one_line_and_coloured_only_if_asked(color: bool) -> None:
    stream = io.StringIO()

    log = make_log(Lossy(stream), form=LogFormat(json=False), color=color)
    log.emit(PolicyRejected(error="it has errors"))

    written = stream.getvalue()
    assert written.count("\n") == 1
    assert ("\x1b[" in written) is color
    plain = re.sub(r"\x1b\[\d+m", "", written)
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \[error *\] policy_rejected error='it has errors'\n", plain)


def test_what_a_caller_calls_itself_does_not_move_the_operators_cursor() -> None:
    stream = io.StringIO()
    log = make_log(Lossy(stream), form=LogFormat(json=False), color=False)

    tags = ("\x1b]0;title\x07",)
    log.emit(ended(caller="\x1b[2J\x9bmoved\u202egnp", model="m" * 100_000, tags=tags))

    line = stream.getvalue()
    assert line.count("\n") == 1
    assert all(char.isprintable() for char in line.rstrip("\n"))
    assert "[2J" in line
    assert len(line) < 5_000


def test_an_object_a_line_keeps_the_words_as_they_came() -> None:
    stream = io.StringIO()
    log = make_log(Lossy(stream), form=LogFormat(json=True), color=False)

    log.emit(ended(caller="\x1b[2J"))

    assert "\x1b" not in stream.getvalue()
    assert json.loads(stream.getvalue())["caller"] == "\x1b[2J"
