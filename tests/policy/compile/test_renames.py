"""`was OLD` between two policies: what diff says of it, and of a name that has changed without it (HM703)."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.dialects import KNOWN_NAMES
from hivemind_trio.model import Decision, Request, Verdict
from hivemind_trio.policy import (
    Checked,
    MemoryFiles,
    Program,
    Renames,
    check,
    diff,
    format_text,
    occurrences,
    render_diff,
    setting_changes,
)
from tests.policy.drawn import Drawn, policies
from tests.support.policies import compiled

KINDS: Final = ("provider", "lane", "team", "agent", "budget", "retry", "resource")


def checked(text: str, **more: str) -> Checked:
    files = {"team.hmp": text} | {f"{name}.hmp": other for name, other in more.items()}
    found = check("team.hmp", MemoryFiles(files))
    assert found.program is not None, found.diagnostics
    return found


OLD: Final = """
provider anthropic { fallback spare; retry calm }
provider spare { api anthropic; base "http://127.0.0.1:1" }
retry calm { attempts 2 }
lane chat { weight 2 }
team ml { }
agent bot { token env(T); team ml; lane chat }
agent ci when header.x-ci != "" { team ml }
budget spend per team when team == ml { cost $5/day; at 50% { lane chat }; at 100% { deny } }
let ours = agent == bot or agent in [ci]
resource gpu { allow bot }
rule a when ours and stream { lane chat; retry calm }
rule b when provider == spare { priority 2 }
test "x" { given { agent ci; stream true }; expect lane == chat and provider == anthropic and retry == calm }
"""
"""A reference of every kind, so that a name which is not followed shows."""

NEW: Final = """
provider main was anthropic { api anthropic; fallback reserve; retry quiet }
provider reserve was spare { api anthropic; base "http://127.0.0.1:1" }
retry quiet was calm { attempts 2 }
lane talk was chat { weight 2 }
team lab was ml { }
agent robot was bot { token env(T); team lab; lane talk }
agent build was ci when header.x-ci != "" { team lab }
budget money was spend per team when team == lab { cost $5/day; at 50% { lane talk }; at 100% { deny } }
let ours = agent == robot or agent in [build]
resource card was gpu { allow robot }
rule a when ours and stream { lane talk; retry quiet }
rule b when provider == reserve { priority 2 }
test "x" { given { agent build; stream true }; expect lane == talk and provider == main and retry == quiet }
"""


def test_a_rename_is_told_as_one_and_changes_nothing_else() -> None:
    found = diff(checked(OLD), checked(NEW))

    assert [(one.kind, one.before, one.after, one.verb, one.effect.state) for one in found.changes] == [
        ("provider", "anthropic", "main", "renamed", "kept"),
        ("provider", "spare", "reserve", "renamed", "kept"),
        ("lane", "chat", "talk", "renamed", "kept"),
        ("team", "ml", "lab", "renamed", "kept"),
        ("agent", "bot", "robot", "renamed", "kept"),
        ("agent", "ci", "build", "renamed", "kept"),
        ("budget", "spend", "money", "renamed", "kept"),
        ("retry", "calm", "quiet", "renamed", "kept"),
        ("resource", "gpu", "card", "renamed", "kept"),
    ]
    assert not found.calls
    assert found.complete


def test_what_else_changes_is_told_under_the_new_name() -> None:
    before = checked("provider anthropic { }\nlane chat { weight 2 }\nrule a when stream { lane chat }\n")
    after = checked("provider anthropic { }\nlane talk was chat { weight 3 }\nrule a when tools { lane talk }\n")

    found = diff(before, after)

    assert [(one.subject, one.setting, one.verb) for one in found.changes] == [
        ("lane talk", "", "renamed"),
        ("lane talk", "weight", "raised"),
    ]
    turns = {(turn.setting, turn.before, turn.after) for call in found.calls for turn in call.turns}
    assert turns == {("lane", "talk", "default"), ("lane", "default", "talk")}


def test_a_name_is_followed_into_what_is_included() -> None:
    before = checked(
        'include "*s.hmp"\nprovider anthropic { }\n', lanes="lane chat { }\n", rules="rule a { lane chat }\n"
    )
    after = checked(
        'include "*s.hmp"\nprovider anthropic { }\n', lanes="lane talk was chat { }\n", rules="rule a { lane talk }\n"
    )

    found = diff(before, after)

    assert [(one.subject, one.verb) for one in found.changes] == [("lane talk", "renamed")]
    assert not found.calls


KNOWN: Final = {
    "with a block": ("provider anthropic { queue 3 }\n", "provider claude was anthropic { api anthropic; queue 3 }\n"),
    "with an empty one": ("provider anthropic { }\n", "provider claude was anthropic { api anthropic }\n"),
    "without one": ("provider anthropic\n", "provider claude was anthropic { api anthropic }\n"),
    "extended by another": (
        "provider anthropic { queue 3 }\nprovider openai extends anthropic\n",
        "provider claude was anthropic { api anthropic; queue 3 }\nprovider openai extends claude { api openai }\n",
    ),
    "that extends another": (
        "provider openai { queue 3 }\nprovider anthropic extends openai { }\n",
        "provider openai { queue 3 }\nprovider claude extends openai was anthropic { api anthropic }\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), KNOWN.values(), ids=KNOWN)
def test_a_well_known_name_may_be_given_up(before: str, after: str) -> None:
    found = diff(checked(before), checked(after))

    assert [(one.subject, one.verb) for one in found.changes] == [("provider claude", "renamed")]
    assert not found.calls


BACK: Final = {
    "what was renamed before": ("lane b was a { }\nrule r { lane b }\n", "lane a was b { }\nrule r { lane a }\n", "a"),
    "to what another was": (
        "lane b was a { }\nlane c { weight 2 }\nrule q when stream { lane c }\nrule r { lane b }\n",
        "lane b { }\nlane a was c { weight 2 }\nrule q when stream { lane a }\nrule r { lane b }\n",
        "a",
    ),
}


def test_a_new_name_that_meant_something_else_is_told_all_the_same() -> None:
    before = checked(
        'provider anthropic { }\nlet talk = "gpt-*"\nlane chat { }\nrule r when model ~ talk { lane chat }\n'
    )
    after = checked('provider anthropic { }\nlane talk was chat { }\nrule r when model ~ "gpt-*" { lane talk }\n')

    found = diff(before, after)

    assert {(one.subject, one.verb) for one in found.changes} <= {
        ("lane talk", "renamed"),
        ("lane chat", "removed"),
        ("lane talk", "added"),
    }
    assert found.changes
    assert not any(one.effect.code for one in found.changes)


@pytest.mark.parametrize(("before", "after", "name"), BACK.values(), ids=BACK)
def test_a_name_comes_back(before: str, after: str, name: str) -> None:
    found = diff(checked("provider anthropic { }\n" + before), checked("provider anthropic { }\n" + after))

    assert [(one.subject, one.verb) for one in found.changes] == [(f"lane {name}", "renamed")]
    assert not found.calls


SHOWN: Final = {
    "text": "lane talk (team.hmp:2)\n  renamed, was chat\n    kept: counters and learned values move",
    "json": '"change": "renamed",\n      "before": "chat",\n      "after": "talk",',
    "markdown": "| `lane talk` | **renamed** | `chat` | `talk` | kept: ",
}


@pytest.mark.parametrize("format_", SHOWN)
def test_a_rename_is_shown(format_: str) -> None:
    before = checked("provider anthropic { }\nlane chat { }\nrule a { lane chat }\n")
    after = checked("provider anthropic { }\nlane talk was chat { }\nrule a { lane talk }\n")

    assert SHOWN[format_] in render_diff(diff(before, after), format_)


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@given(drawn=policies(), data=st.data())
def test_whatever_is_renamed_of_a_policy_nothing_else_changes(drawn: Drawn, data: st.DataObject) -> None:
    before = checked(drawn.text)
    names = [
        one.symbol
        for one in occurrences(before)
        # What has a provider's well-known name need not say what it speaks, and under another it has to.
        if one.declares and one.symbol.kind in KINDS and one.symbol.name not in ("default", *KNOWN_NAMES)
    ]
    renamed = data.draw(st.sets(st.sampled_from(names), min_size=1)) if names else set()
    text = drawn.text
    for one in reversed(occurrences(before)):
        if one.symbol in renamed:
            name = one.symbol.name
            text = text[: one.span.start] + f"{name}-now" + f" was {name}" * one.declares + text[one.span.end :]

    found = diff(before, checked(text))

    assert {(one.kind, one.before, one.verb) for one in found.changes} == {(s.kind, s.name, "renamed") for s in renamed}
    assert not found.calls


# ---- when it holds ----


def lanes(*heads: str) -> Program:
    rules = "".join(
        f"rule r{number} when tokens.in > {number} {{ lane {head.split()[0]} }}\n" for number, head in enumerate(heads)
    )
    return compiled("provider anthropic { }\n" + "".join(f"lane {head} {{ }}\n" for head in heads) + rules)


HOLDS: Final = {
    "the running one has the old name": (("a",), ("b was a",), {"a": "b"}),
    "it has the new one already": (("b was a",), ("b was a",), {}),
    "it has both": (("a", "b"), ("b was a",), {}),
    "it has neither": (("c",), ("b was a",), {}),
    "it is another kind's name": (("anthropic",), ("b was a",), {}),
    "two at once": (("a", "c"), ("b was a", "d was c"), {"a": "b", "c": "d"}),
    "a chain, one after the other": (("b was a",), ("c was b",), {"b": "c"}),
}


@pytest.mark.parametrize(("before", "after", "renamed"), HOLDS.values(), ids=HOLDS)
def test_a_rename_holds_where(before: tuple[str, ...], after: tuple[str, ...], renamed: dict[str, str]) -> None:
    found = Renames.between(lanes(*before), lanes(*after))

    assert found.of("lane") == renamed
    assert bool(found) is bool(renamed)


def test_two_names_change_places_so_that_nothing_is_lost_or_has_the_name_of_another() -> None:
    found = Renames.between(lanes("a"), lanes("b was a"))

    assert found.rekeyed("lane", {"b": 1, "x": 2, "a": 3}) == {"a": 1, "x": 2, "b": 3}


AGENTS: Final = "provider anthropic { }\nagent ci { token env(T) }\nagent bot { }\n"
RENAMED: Final = "provider anthropic { }\nagent build was ci { token env(T) }\nagent robot was bot { }\n"


def test_who_called_under_the_old_name_is_known_by_the_new_one() -> None:
    found = Renames.between(compiled(AGENTS), compiled(RENAMED))

    def known(before: Request) -> tuple[str | None, str | None]:
        request = found.request(before)
        return request.token_agent, request.claimed

    assert known(Request(token_agent="ci")) == ("build", None)
    assert known(Request(claimed="bot")) == (None, "robot")
    assert known(Request(claimed="ci")) == (None, "ci"), "no claim names an agent that a token proves"
    assert known(Request(claimed="x")) == (None, "x")


def test_a_treatment_is_put_in_the_names_of_now() -> None:
    renames = Renames.between(compiled(OLD), compiled(NEW))
    was = Decision(
        agent="bot", team="ml", provider="anthropic", instead_of="spare", group=None, lane="chat", priority=0,
        deadline_ns=None, retry="calm", verdict=Verdict.ALLOW, budgets=("spend",),
    )  # fmt: skip

    now = renames.treatment(was)

    assert (now.agent, now.team, now.provider, now.instead_of) == ("robot", "lab", "main", "reserve")
    assert (now.lane, now.retry, now.budgets) == ("talk", "quiet", ("money",))


# ---- how it is written ----

SHAPES: Final = {
    "before extends": "agent a { }\nagent b was c extends a { }\n",
    "behind it": "agent a { }\nagent b extends a was c { }\n",
    "before a condition": 'agent b was c when header.x != "" { }\n',
    "before an option": "budget b was c per agent { tokens 5/day }\n",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_stands(shape: str) -> None:
    text = "provider anthropic { }\n" + shape

    program = compiled(text)

    assert [*program.was.values()] == [{"b": "c"}]
    assert compiled(format_text(text)).was == program.was


def test_a_lane_may_have_the_name_that_another_kind_has_or_had() -> None:
    assert compiled("provider anthropic { }\nagent ci { }\nlane fast was ci { }\nrule a { lane fast }\n").was == {
        "lane": {"fast": "ci"}
    }


# ---- HM703 ----

REST: Final = "provider anthropic { }\n"

MISTAKEN: Final = {
    "all that it says is the same": ("lane chat { weight 3 }", "lane other { weight 3 }", {"other": "chat"}),
    "alike by name and in most": ("lane chat { weight 3 }", "lane chats { weight 2 }", {"chats": "chat"}),
    "alike by name alone": (
        "lane chat { weight 3; max 2; queue 4; deadline 5s }",
        "lane chats { weight 2; max 3; queue 5; deadline 6s }",
        {},
    ),
    "alike in most alone": ("lane chat { weight 3 }", "lane batch { weight 2 }", {}),
    "said": ("lane chat { weight 3 }", "lane other was chat { weight 3 }", {}),
    "another kind": ("lane chat { }", "team chat { }\nagent a { team chat }", {}),
    "two that it could have been": ("lane a { weight 3 }; lane b { weight 3 }", "lane c { weight 3 }", {}),
    "two that it could be": ("lane a { weight 3 }", "lane b { weight 3 }; lane c { weight 3 }", {}),
    "a budget": ("budget day { cost $5/day }", "budget daily { cost $5/day }", {"daily": "day"}),
    "an agent": ("agent ci { concurrency 3 }", "agent build { concurrency 3 }", {"build": "ci"}),
    "a provider": (
        'provider lab { api vllm; base "http://127.0.0.1:1" }',
        'provider gpu { api vllm; base "http://127.0.0.1:1" }',
        {"gpu": "lab"},
    ),
    "a provider elsewhere": (
        'provider lab { api vllm; base "http://127.0.0.1:1" }',
        'provider gpu { api vllm; base "http://127.0.0.1:2" }',
        {},
    ),
}


@pytest.mark.parametrize(("before", "after", "meant"), MISTAKEN.values(), ids=MISTAKEN)
def test_it_is_asked_whether_a_name_has_changed(before: str, after: str, meant: dict[str, str]) -> None:
    changes = setting_changes(checked(REST + before), checked(REST + after))

    asked = [one for one in changes if one.effect.code == "HM703"]
    assert {one.name: one.verb for one in asked} == dict.fromkeys(meant, "added")
    assert all(f"write `was {meant[one.name]}`" in one.effect.says for one in asked)
