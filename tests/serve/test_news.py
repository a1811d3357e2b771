"""What an operator is told of a policy that was taken up: line by line, and never without end."""

from __future__ import annotations

import io
from typing import Any

import attrs
import pytest
import trio

from hivemind_trio.model import Reason
from hivemind_trio.policy import MemoryFiles, call_changes, check, setting_changes
from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve import Options, watcher
from hivemind_trio.serve.change_log import SAID_MAX, say_calls, say_changes
from hivemind_trio.serve.load import load
from hivemind_trio.serve.log import LogFormat, Lossy, Notices

from .conftest import Said

BASE = "provider openai { }\n"


def checked(text: str) -> Any:
    return check("team.hmp", MemoryFiles({"team.hmp": text}))


def test_each_setting_has_a_line_and_what_resets_is_a_warning(said: Said) -> None:
    old = "provider openai { concurrency 8 }\nbudget b { cost $1/day }\n"
    new = "provider openai { concurrency 2 }\nbudget b { cost $1/hour }\n"

    say_changes(said.log, setting_changes(checked(old), checked(new)))

    assert said.lines == [
        {
            "event": "setting_changed",
            "level": "info",
            "declaration": "provider openai",
            "setting": "concurrency",
            "change": "lowered",
            "before": "8",
            "after": "2",
            "state": "drains",
            "effect": "calls in flight above the limit finish; no new dispatch until there is room",
        },
        {
            "event": "state_reset",
            "level": "warning",
            "code": "HM701",
            "declaration": "budget b",
            "setting": "cost",
            "change": "changed",
            "before": "$1/day",
            "after": "$1/hour",
            "state": "resets",
            "effect": "the window is another one: counting starts at 0",
        },
    ]


def test_many_changes_are_counted_after_the_first_ones(said: Said) -> None:
    lanes = "".join(f"lane l{number} {{ }}\nrule r{number} when hour == {number % 24} {{ tag t{number} }}\n"
                    for number in range(SAID_MAX + 3))  # fmt: skip
    old, new = checked(BASE), checked(BASE + lanes)

    say_changes(said.log, setting_changes(old, new))
    calls, complete = call_changes(old, new)
    say_calls(said.log, calls, complete=complete)

    assert [line["event"] for line in said.lines[: SAID_MAX + 1]] == ["setting_changed"] * SAID_MAX + [
        "setting_changes_omitted"
    ]
    assert {line["change"] for line in said.lines[:SAID_MAX]} == {"added"}
    assert said.lines[SAID_MAX]["count"] == 3
    assert said.lines[-1] == {
        "event": "decision_changes_omitted",
        "level": "info",
        "count": len(calls) - SAID_MAX,
        "see": "hivemind-trio diff",
    }


def test_what_a_call_has_several_of_is_one_field_whose_name_is_no_word_of_the_policy(said: Said) -> None:
    budgets = "budget one { requests 9/day }\n"
    old = checked(BASE + budgets + "rule r { tag a; tag b }\n")
    new = checked(BASE + "budget two { requests 9/day }\n" + 'rule r { tag b; tag c; tag d; warn "not for long" }\n')

    calls, _ = call_changes(old, new)
    say_calls(said.log, calls, complete=True)

    (line,) = said.lines
    assert {name: set(line[name].split()) for name in ("tags", "budgets")} == {
        "tags": {"-a", "+c", "+d"},
        "budgets": {"-one", "+two"},
    }
    assert line["warnings"] == '+"not for long"'
    assert line.keys() == {"event", "level", "tags", "budgets", "warnings"}


def test_a_setting_of_two_words_is_a_field(said: Said) -> None:
    calls, _ = call_changes(checked(BASE), checked(BASE + "rule r { max-output 4k }\n"))
    say_calls(said.log, calls, complete=True)

    (line,) = said.lines
    assert line["max_output"] == "none -> 4,000 tokens"


def test_a_call_is_shown_as_explain_takes_it(said: Said) -> None:
    new = checked(BASE + 'rule r when header.x-job ~ "a b*" and stream { priority 7; deny "no" }\n')

    calls, _ = call_changes(checked(BASE), new)
    say_calls(said.log, calls, complete=False)

    assert said.lines == [
        {
            "event": "decision_changed",
            "level": "info",
            "example": "stream=true 'header.x-job=a b'",
            "verdict": 'admitted -> denied: "no"',
        },
        {"event": "decision_diff_incomplete", "level": "info", "see": "hivemind-trio diff"},
    ]


async def test_a_comparison_that_fails_ends_no_proxy(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_more: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(watcher, "call_changes", broken)
    observer = watcher.Watcher(said.log, LogFormat(json=True), Lossy(io.StringIO()), Notices(said.log), Options())
    loaded = await trio.to_thread.run_sync(load, "team.hmp", MemoryFiles({"team.hmp": BASE}))

    await observer.say_calls(loaded, loaded)

    (line,) = said.lines
    assert (line["event"], line["error"]) == ("decision_diff_failed", "RuntimeError: a bug")


def test_an_agent_that_is_given_a_429_is_logged_with_the_wait_that_it_was_told(said: Said) -> None:
    observer = watcher.Watcher(said.log, LogFormat(json=True), Lossy(io.StringIO()), Notices(said.log), Options())
    record = CallRecord(id="b-1", status=429, rejected=False, reason=Reason.NONE, provider="openai")

    async def main() -> None:
        observer.call(attrs.evolve(record, retry_after_s=86_400))
        observer.call(attrs.evolve(record, retry_after_s=86_399))  # of the same provider within a minute: it is counted

    trio.run(main)

    assert said.lines == [
        {"event": "rate_limited", "level": "warning", "provider": "openai", "status": 429, "retry_after_s": 86_400}
    ]
