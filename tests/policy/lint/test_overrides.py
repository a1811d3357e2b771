"""A setting is inherited whole or replaced whole: what the checker says where that is easily forgotten."""

from __future__ import annotations

import pytest

from hivemind_trio.policy import MemoryFiles, check


def codes(text: str) -> list[str]:
    found = check("team.hmp", MemoryFiles({"team.hmp": text + "\n"})).diagnostics
    return [one.code for one in found if one.code in ("HM309", "HM310") or one.severity == "error"]


TIMEOUTS = "defaults provider { timeout connect 5s total 10m }\n"
DEGRADED = "defaults provider { degraded when tokens.out < 2 }\n"
LIMITS = 'defaults provider { limits { requests 50/min; input 40k/min }; limits "gpt-5*" { requests 5/min } }\n'

CASES = {
    "an option left out": (TIMEOUTS + "provider anthropic { timeout connect 2s }", ["HM310"]),
    "all options, other values": (TIMEOUTS + "provider anthropic { timeout connect 2s total 5m }", []),
    "another option": (TIMEOUTS + "provider anthropic { timeout idle 2s }", []),
    "more options": (TIMEOUTS + "provider anthropic { timeout connect 2s total 5m idle 1m }", []),
    "the same": (TIMEOUTS + "provider anthropic { timeout connect 5s total 10m }", ["HM309"]),
    "the same in other units": (TIMEOUTS + "provider anthropic { timeout connect 5000ms total 600s }", ["HM309"]),
    "a block left out": (LIMITS + "provider openai { limits { requests 9/min; input 9k/min } }", ["HM310"]),
    "a line of a block left out": (
        LIMITS + 'provider openai { limits { requests 9/min }; limits "gpt-5*" { requests 5/min } }',
        ["HM310"],
    ),
    "fewer globs, which is what one says": (
        'defaults provider { serves ["a*", "b*"] }\nprovider anthropic { serves ["a*"] }',
        [],
    ),
    "another condition": (DEGRADED + "provider anthropic { degraded when status == 203 }", []),
    "the same condition": (DEGRADED + "provider anthropic { degraded when  tokens.out < 2 }", ["HM309"]),
    "of a parent, not of the defaults": (
        "defaults agent { concurrency 4 }\nagent a { concurrency 2 }\nagent b extends a { concurrency 4 }\n"
        "agent c extends a { concurrency 2 }\nprovider anthropic { }",
        ["HM309"],
    ),
    "nothing inherited": ("provider anthropic { timeout connect 5s }", []),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_what_is_replaced_is_told_as_far_as_it_is_lost(text: str, expected: list[str]) -> None:
    assert codes(text) == expected
