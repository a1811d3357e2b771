"""Classes of ends of processes."""

import json
import signal

import pytest

from hivemind_trio.jobs.adapters import NAMED
from hivemind_trio.jobs.ending import EndKind, LastCall, classify

CLAUDE, GENERIC = NAMED["claude"], NAMED["generic"]
OK = LastCall(status=200, reason="none", was_rejected=False)
LIMITED = LastCall(status=429, reason="provider-spent", was_rejected=True, opens_s=99.0)
"""As the real Claude Code prints it at a session limit."""
RESULT = json.dumps(
    {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429, "result": "API Error (429)"}
)


def test_a_status_of_zero_is_done() -> None:
    assert classify(CLAUDE, 0, "done", OK, resumed=False).end is EndKind.DONE
    assert classify(CLAUDE, 0, "talks of a 429 rate limit", LIMITED, LIMITED, resumed=False).end is EndKind.DONE


def test_an_error_in_the_result_is_none() -> None:
    failed = json.dumps({"type": "result", "is_error": True, "result": "Invalid model"})
    ending = classify(CLAUDE, 0, failed, OK, resumed=False)
    assert ending.end is EndKind.FAILED
    assert "Invalid model" in ending.words


def test_a_limit_that_the_proxy_saw_says_when_it_opens() -> None:
    ending = classify(CLAUDE, 1, RESULT, LIMITED, LIMITED, resumed=False)
    assert (ending.end, ending.opens_s) == (EndKind.LIMIT, 99.0)
    assert "provider-spent" in ending.words


def test_a_small_call_after_the_limit_does_not_hide_it() -> None:
    assert classify(CLAUDE, 1, RESULT, OK, LIMITED, resumed=False).end is EndKind.LIMIT


def test_a_limit_that_was_got_over_is_not_why_it_failed() -> None:
    assert classify(GENERIC, 1, "AssertionError: 3 != 4", OK, LIMITED, resumed=False).end is EndKind.FAILED


def test_without_a_proxy_of_its_own_the_output_counts() -> None:
    assert classify(CLAUDE, 1, RESULT, None, resumed=False).end is EndKind.LIMIT


@pytest.mark.parametrize(
    "said",
    [
        "You've hit your session limit · resets 10:13pm",
        "You've hit your 5-hour limit · resets 6:36am (UTC)",
        "You've hit your weekly limit · resets Nov 30, 9am (UTC)",
        "hivemind-trio: the rest of the plan of the call's account at provider `claude` is reserved for other lanes "
        "than `batch`; the call can start in 1 h 56 min",
    ],
)
def test_words_of_a_limit_count_where_the_proxy_has_seen_no_call(said: str) -> None:
    assert classify(CLAUDE, 1, f"{said}\n", None, resumed=False).end is EndKind.LIMIT
    assert classify(CLAUDE, 1, f"{said}\n", OK, resumed=False).end is EndKind.FAILED  # only a quotation


@pytest.mark.parametrize("status", [-signal.SIGKILL, 128 + signal.SIGSEGV])
def test_a_killed_process_has_crashed(status: int) -> None:
    ending = classify(CLAUDE, status, "", OK, resumed=False)
    assert ending.end is EndKind.CRASH
    assert "SIG" in ending.words


def test_a_lost_provider_is_a_crash() -> None:
    broke = LastCall(status=502, reason="upstream-broke", was_rejected=True)
    assert classify(GENERIC, 1, "", broke, resumed=False).end is EndKind.CRASH


def test_a_session_that_is_not_there_begins_anew() -> None:
    said = "No conversation found with session ID: 1"
    assert classify(CLAUDE, 1, said, None, resumed=True).end is EndKind.LOST
    assert classify(CLAUDE, 1, said, None, resumed=False).end is EndKind.FAILED


def test_any_other_status_has_failed_with_its_last_line() -> None:
    ending = classify(GENERIC, 3, "first\nno such file\n\n", None, resumed=False)
    assert (ending.end, ending.words) == (EndKind.FAILED, "exit status 3: no such file")
