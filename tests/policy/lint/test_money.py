"""Amounts beside each other: what the checker says of them holds at the edge, and beyond it there is silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.policy import Dimension, MemoryFiles, RateLimitSettings, check
from hivemind_trio.policy.lint.rate_arithmetic import most

MONEY = ("HM402", "HM403", "HM405", "HM406", "HM411", "HM417")


def codes(text: str) -> list[str]:
    return [
        one.code
        for one in check("team.hmp", MemoryFiles({"team.hmp": text})).diagnostics
        if one.code in MONEY or one.severity == "error"
    ]


SAID = {
    "slots beyond what two windows hold": (
        "HM403",
        "provider anthropic {{ concurrency {}; timeout total 1m; limits {{ requests 10/min }} }}",
        21,
        20,
    ),
    "a budget beyond what the limit lets pass": (
        "HM405",
        "provider anthropic {{ limits {{ output 100/min }} }}\nbudget b {{ output {}/hour }}",
        6_101,
        6_100,
    ),
    "a budget of the models of one block": (
        "HM405",
        'provider anthropic {{ limits {{ requests 1/day }}; limits "claude-opus-*" {{ requests 10/min }} }}\n'
        'budget b when model ~ "claude-opus-4*" {{ requests {}/hour }}',
        611,
        610,
    ),
    "a budget of models that no other block is for": (
        "HM405",
        'provider anthropic {{ limits "claude-opus-*" {{ requests 10/min }} }}\n'
        'budget b when model in ["claude-opus-4-1", "claude-opus-4-5"] {{ requests {}/hour }}',
        611,
        610,
    ),
    "a child above its parent": (
        "HM406",
        "provider anthropic {{ }}\nbudget a {{ cost $20/day }}\nbudget b when stream {{ cost ${}/day }}",
        21,
        20,
    ),
    "a long window beyond what the short one lets pass": (
        "HM417",
        "provider anthropic {{ limits {{ requests 10/min; requests {}/hour }} }}",
        610,
        609,
    ),
    "an agent above all that its providers let pass": (
        "HM402",
        "provider anthropic {{ limits {{ requests 10/min }} }}\nprovider openai {{ limits {{ requests 5/min }} }}\n"
        "agent ci {{ limits {{ requests {}/hour }} }}",
        915,
        914,
    ),
    "a long window of an agent beyond what the short one lets pass": (
        "HM417",
        "provider anthropic {{ }}\nagent ci {{ limits {{ requests 10/min; requests {}/hour }} }}",
        610,
        609,
    ),
    "a cut that leaves next to nothing": (
        "HM411",
        "provider anthropic {{ concurrency 2..8; aimd decrease {}% }}",
        95,
        94,
    ),
}


@pytest.mark.parametrize(("code", "text", "told", "silent"), SAID.values(), ids=SAID)
def test_a_finding_begins_exactly_where_it_becomes_true(code: str, text: str, told: int, silent: int) -> None:
    assert codes(text.format(told)) == [code]
    assert codes(text.format(silent)) == []


SILENT = {
    "slots that other models may take": "provider anthropic { concurrency 400; timeout total 1m\n"
    'limits "claude-opus-*" { requests 10/min } }',
    "slots by default": "provider anthropic { timeout total 1s; limits { requests 1/day } }",
    "a budget that another provider can fill": "provider anthropic { limits { requests 1/day } }\n"
    "provider openai { }\nbudget b { requests 1k/day }",
    "a budget of a model that is in no block": 'provider anthropic { limits "claude-opus-*" { requests 1/day } }\n'
    'budget b when model ~ "claude-*" { requests 1k/day }',
    "a budget of models of two blocks": "provider anthropic { limits { requests 1k/day }\n"
    'limits "claude-opus-*" { requests 1/day } }\nbudget b when model ~ "claude-*" { requests 1k/day }',
    "a budget of models that a rule replaces": 'provider anthropic { limits "claude-opus-*" { requests 1/day } }\n'
    'budget b when model ~ "claude-opus-*" { requests 1k/day }\nrule r when stream { model "claude-haiku-4-5" }',
    "cached input is not what a provider limits": "provider anthropic { limits { input 1/day } }\n"
    "budget b { input 1M/day }",
    "a parent that only watches": "provider anthropic { }\nlane late { }\n"
    "budget a { cost $1/day; at 100% { lane late } }\nbudget b { cost $2/day }",
    "a parent for other calls": "provider anthropic { }\n"
    "budget a when stream { cost $1/day }\nbudget b when tools { cost $2/day }",
    "a parent of each agent": "provider anthropic { }\nbudget a per agent { cost $1/day }\nbudget b { cost $2/day }",
    "another window": "provider anthropic { }\nbudget a { cost $1/hour }\nbudget b { cost $2/day }",
    "aimd by default": "defaults provider { aimd decrease 30% }\nprovider anthropic { concurrency 4 }",
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_what_can_be_reached_is_not_warned_of(text: str) -> None:
    assert codes(text + "\n") == []


@given(
    amount=st.integers(1, 20),
    window=st.integers(1, 10),
    time=st.integers(0, 40),
    wanted=st.lists(st.integers(0, 5), min_size=41, max_size=41),
)
def test_a_bucket_lets_no_more_begin_than_is_said(amount: int, window: int, time: int, wanted: list[int]) -> None:
    bound = most(RateLimitSettings(dimension=Dimension.REQUESTS, amount=amount, window_ns=window), time)

    tokens, begun = amount * window, 0  # a bucket, full, in parts of a call
    for moment in range(time + 1):
        if moment:
            tokens = min(amount * window, tokens + amount)
        taken = min(wanted[moment], tokens // window)
        tokens -= taken * window
        begun += taken
    assert begun <= bound
