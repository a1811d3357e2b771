"""`degraded when`: what it may ask of an answer, and what it makes of one."""

from __future__ import annotations

import pytest

from hivemind_trio.model import Usage
from hivemind_trio.policy import DegradedSettings, FinishedAnswer, MemoryFiles, Program, Severity, check


def program(text: str) -> Program:
    checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
    assert checked.program is not None, [one for one in checked.diagnostics if one.severity is Severity.ERROR]
    assert checked.diagnostics == (), checked.diagnostics
    return checked.program


def degraded(condition: str) -> DegradedSettings:
    one = program(f"provider openai {{ degraded when {condition} }}").providers["openai"].degraded
    assert one is not None
    return one


COUNTED = Usage(input=10, cache_read=30, cache_write=2, output=5)
EMPTY = Usage(input=10, output=0)
STREAMED = Usage(output=3, exact=False)
"""As OpenAI streams without `include_usage`: what was put out could be counted, what was read could not."""


@pytest.mark.parametrize(
    ("condition", "usage", "counts"),
    [
        ("tokens.out == 0", EMPTY, True),
        ("tokens.out == 0", COUNTED, False),
        ("tokens.out < 4", STREAMED, True),
        ("tokens.out == 0", None, False),
        ("not tokens.out > 0", None, False),
        ("tokens.in == 42", COUNTED, True),
        ("tokens.in == 0", STREAMED, False),
        ("tokens.total == 47", COUNTED, True),
        ("tokens.total < 10", STREAMED, False),
        ("tokens.total < 10", None, False),
        ("model ~ \"gpt-*\"", None, True),
        ("model == \"gpt-4\"", None, False),
        ("stream", None, True),
        ("not stream", None, False),
        ("status == 200", None, True),
        ("status in [201..299]", COUNTED, False),
        ("model ~ \"gpt-*\" and stream and tokens.out == 0", EMPTY, True),
        ("stream or tokens.in == 0", STREAMED, False),
    ],
)  # fmt: skip
def test_a_condition_is_asked_of_what_is_known(condition: str, usage: Usage | None, counts: bool) -> None:
    answer = FinishedAnswer(status=200, model="gpt-5", stream=True, usage=usage)

    assert degraded(condition).counts(answer) is counts


INHERITED = """
let empty = tokens.out == 0
defaults provider { degraded when tokens.out < 2 }
provider anthropic { degraded when empty }
provider openai extends anthropic { api openai; base "https://api.openai.com" }
provider gemini { }
"""


def test_it_is_inherited_like_any_setting_and_may_be_a_let() -> None:
    providers = program(INHERITED).providers

    assert providers["anthropic"].degraded == degraded("tokens.out == 0")
    assert providers["openai"].degraded == degraded("tokens.out == 0")
    assert providers["gemini"].degraded == degraded("tokens.out < 2")


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("header.x-model == \"a\"", "HM213"),
        ("meta.user == \"a\"", "HM213"),
        ("agent == unknown", "HM213"),
        ("tokens.max-out == 0", "HM213"),
        ("tokens.out", "HM211"),
        ("model == 200", "HM212"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "where", ["provider openai {{ degraded when {} }}", "defaults provider {{ degraded when {} }}"]
)
def test_what_an_answer_does_not_have_is_an_error_wherever_it_is_asked_for(
    where: str, condition: str, code: str
) -> None:
    checked = check("team.hmp", MemoryFiles({"team.hmp": where.format(condition) + "\nprovider anthropic { }"}))

    assert [one.code for one in checked.diagnostics] == [code]
    assert "yet" not in checked.diagnostics[0].message  # whoever called is not known here later either
