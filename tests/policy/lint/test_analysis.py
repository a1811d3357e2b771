"""What the checker says of rules that can do nothing, held against every call there is in a small world."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Api, Request, Verdict
from hivemind_trio.policy import Checked, MemoryFiles, check
from hivemind_trio.policy.language.condition_eval import field_values, holds
from hivemind_trio.policy.lint import reachability
from hivemind_trio.policy.solver.box_cover import Cover
from hivemind_trio.policy.solver.satisfiability import Space

HEAD = """provider anthropic {{ serves ["a*"] }}
provider openai {{ serves ["*b"] }}
lane x {{ }}
lane y {{ }}
agent ci {{ token env(CI) }}
agent job when {job} {{ }}
"""

# Every class that the globs below make of texts has one here.
MODELS = ("", "a", "ab", "ac", "b", "c", "acb", "add", "dd", "db", "ddb")

NOWHERE_TOLD = ("", "ab", "acb")
"""Models that each dialect has a provider for, so that only a call of no dialect goes nowhere."""

TESTS = [
    "stream", "not stream", "tools", "agent == ci", "agent != unknown", "agent == job", "agent == unknown",
    "hour < 6", "hour >= 6", "hour in 4..7", "hour != 5",
    'model ~ "a*"', 'model ~ "*b"', 'model == "ab"', 'not model ~ ["a?", "b"]',
    "provider == openai", "provider != anthropic",
    "tokens.in > 2", "tokens.total <= 2", "tokens.max-out == 1", "tokens.total > 3",
]  # fmt: skip


def calls() -> list[Request]:
    """All of the small world; the numbers beyond those that the tests name are like the last ones."""
    who: list[dict[str, Any]] = [{}, {"token_agent": "ci"}, {"claimed": "job"}]
    return [
        Request(
            apis=apis, model=model, stream=stream, tools=tools, hour=hour, weekday=1, tokens_in=given,
            tokens_max_out=out, **caller,
        )
        for caller, model, apis, stream, tools, hour, (given, out) in product(
            who, MODELS, [(Api.ANTHROPIC,), (Api.OPENAI,), ()], [False, True], [False, True], [3, 4, 5, 6, 8],
            [(0, 0), (0, 1), (0, 2), (0, 4), (1, 1), (2, 1), (2, 2), (3, 0), (3, 1), (1, 0)],
        )
        if apis or model in NOWHERE_TOLD
    ]  # fmt: skip


CALLS = calls()


EFFECTS = ["lane x", "lane y", "priority 1", "priority 2", "allow", "hold", "deny", "tag t"]


def _setting(effect: str) -> str:
    return "verdict" if effect in ("allow", "hold", "deny") else effect.split()[0]


@st.composite
def rules(draw: st.DrawFn) -> str:
    tests = st.sampled_from(TESTS)
    both = st.tuples(tests, st.sampled_from([" and ", " or "]), tests).map(lambda parts: f"({''.join(parts)})")
    condition = st.none() | tests | both | st.tuples(both, tests).map(" and ".join) | both.map("not {}".format)
    lines = []
    for number in range(draw(st.integers(2, 6))):
        when = draw(condition)
        effects = draw(st.lists(st.sampled_from(EFFECTS), max_size=3, unique_by=_setting))
        lines.append(f"rule r{number} " + (f"when {when} " if when else "") + f"{{ {'; '.join(effects)} }}\n")
    return "".join(lines)


def happening(checked: Checked) -> tuple[set[tuple[str, str]], dict[str, set[bool]]]:
    """Rule and setting, wherever a call that is not refused has that from the rule; and what each condition can be."""
    assert checked.program is not None
    deciders: set[tuple[str, str]] = set()
    matches: dict[str, set[bool]] = {name: set() for name in checked.conditions["rule"]}
    for request in CALLS:
        treatment = checked.program.decide(request)
        for setting, decider in treatment.decided.items():
            if decider.kind == "rule" and (setting == "verdict" or treatment.verdict is not Verdict.DENY):
                deciders.add((decider.name, setting))
        values = field_values(request, agent=treatment.agent, team="none", provider=treatment.provider)
        for name, condition in checked.conditions["rule"].items():
            assert condition is not None
            if len(matches[name]) < 2:
                matches[name].add(holds(condition, values))
    return deciders, matches


@pytest.mark.slow
@given(job=st.sampled_from(["tools", "hour < 6", 'stream and model ~ "a*"']), text=rules())
@settings(max_examples=20)
def test_what_is_said_of_rules_is_true_and_nothing_is_left_unsaid(job: str, text: str) -> None:
    checked = check("team.hmp", MemoryFiles({"team.hmp": HEAD.format(job=job) + text}))
    source = checked.sources[0].text
    said: dict[str, dict[str, set[str]]] = {}
    for one in checked.diagnostics:
        line = source[source.rfind("\n", 0, one.span.start) + 1 :]
        if line.startswith("rule "):
            setting = source[one.span.start : one.span.end].split()[0]
            said.setdefault(line.split()[1], {}).setdefault(one.code, set()).add(setting)
    assert not any("HM390" in codes for codes in said.values())

    deciders, matches = happening(checked)

    for name, declared in checked.declarations.of("rule").items():
        codes = said.get(name, {})
        named = {"verdict" if word in ("allow", "deny") else word for word in declared.settings} - {"tag"}
        dead = {setting for setting in named if (name, setting) not in deciders}
        if matches[name] == {False}:
            assert codes.keys() & {"HM301", "HM302"}  # the latter where it is a `not` of what is always true
            assert not codes.keys() & {"HM303", "HM304", "HM305"}
        elif dead == named and "tag" not in declared.settings:
            assert len(codes.keys() & {"HM303", "HM305"}) == 1
            assert "HM304" not in codes
        else:
            assert not codes.keys() & {"HM303", "HM305"}
            words = {"verdict" if word in ("allow", "deny") else word for word in codes.get("HM304", set())}
            assert words == dead
        if declared.when is not None and matches[name] == {True}:
            assert codes.keys() & {"HM301", "HM302"}


def codes(text: str) -> list[str]:
    return [one.code for one in check("team.hmp", MemoryFiles({"team.hmp": text})).diagnostics]


SILENT = {
    "a rule that tags what others decide": "rule a { priority 1 }\nrule b when stream { tag t }",
    "a claim needs no header": 'agent j when header.x != "" { }\nrule a when header.x != "" { priority 1 }\n'
    "rule b when agent == j { priority 2 }",
    "no provider may serve a model": "rule a when provider == anthropic { priority 1 }\nrule b { priority 2 }",
    "exempt from a refusal": 'rule ours when header.t == "us" { allow }\nrule no when stream { deny }\n'
    "rule b when stream { priority 2 }",
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_what_can_happen_is_not_warned_of(text: str) -> None:
    assert not [code for code in codes(f"provider anthropic {{ }}\n{text}\n") if code.startswith("HM3")]


def test_a_finding_can_be_allowed_with_a_reason() -> None:
    text = "provider anthropic { }\nrule a { priority 1 }\n{}rule b when stream {{ priority 2 }}\n"

    assert codes(text.replace("{}", "").replace("{{", "{").replace("}}", "}")) == ["HM303"]
    allowed = text.replace("{}", "# hmp: allow HM303 kept for the day when a goes\n")
    assert codes(allowed.replace("{{", "{").replace("}}", "}")) == []


def test_a_setting_that_a_proof_took_too_long_for_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = ["a when stream { priority 1 }", "b when tools { priority 1 }", "c { priority 2 }"]
    text = "provider anthropic { }\n" + "".join(f"rule {rule}\n" for rule in rules)
    assert codes(text) == []

    monkeypatch.setattr("hivemind_trio.policy.solver.box_cover.QUESTION_STEPS_MAX", 1)

    assert codes(text) == ["HM390"]


# ---- large policies ----


def test_the_work_for_twice_as_many_ranges_is_twice_as_much() -> None:
    def lines(number: int) -> int:
        count = 0

        def trace(*_: object) -> Any:
            nonlocal count
            count += 1
            return trace

        everything = (1 << number) - 1
        cubes = [{0: everything ^ ((1 << one) - 1)} for one in range(number)]
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            Cover([number], cubes)
        finally:
            sys.settrace(before)
        return count

    assert lines(800) < 2.2 * lines(400)


def test_alternatives_of_different_fields_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    cover = Space.cover

    def counted(self: Space, cubes: Any) -> Cover:
        searched.append(len(cubes))
        return cover(self, cubes)

    monkeypatch.setattr(Space, "cover", counted)
    rules = "".join(f'rule r{n} when header.x-team in ["t{n}", "u{n}"] or stream {{ tag t{n} }}\n' for n in range(50))

    assert check("team.hmp", MemoryFiles({"team.hmp": rules + "provider anthropic { }\n"})).diagnostics == ()
    assert searched == [50 * 2]  # the rules, compared with each other


def test_conditions_of_agents_are_searched_by_as_many_covers_however_many_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    covers = 0
    cover = Space.cover

    def counted(self: Space, cubes: Any) -> Cover:
        nonlocal covers
        covers += 1
        return cover(self, cubes)

    monkeypatch.setattr(Space, "cover", counted)

    def of(number: int) -> int:
        nonlocal covers
        covers = 0
        agents = "".join(f'agent a{n} when header.x-role == "r{n}" {{ }}\n' for n in range(number))
        rules = "".join(f"rule r{n} when agent == a{n} {{ tag t{n} }}\n" for n in range(number))
        assert codes(f"provider anthropic {{ }}\n{agents}{rules}") == []
        return covers

    assert of(20) == of(5)


def test_a_check_tells_of_each_of_its_parts() -> None:
    told: list[str] = []
    text = (
        'provider anthropic { }\nagent a when header.x == "1" { lane default }\nrule r when agent == a { priority 1 }\n'
    )

    check("team.hmp", MemoryFiles({"team.hmp": text}), lambda doing, _done, _of: told.append(doing))

    assert list(dict.fromkeys(told)) == [
        "dividing into words", "reading", "reading declarations", "reading conditions", "comparing declarations",
        "compiling", "dividing calls", "judging conditions", "comparing agents", "comparing rules",
        "comparing agents and rules", "comparing settings",
    ]  # fmt: skip


@pytest.mark.parametrize(("pairs", "codes"), [(10, ["HM303"]), (0, [])], ids=["compared", "given up"])
def test_beyond_the_bound_a_rule_is_taken_to_refuse_less(
    monkeypatch: pytest.MonkeyPatch, pairs: int, codes: list[str]
) -> None:
    monkeypatch.setattr(reachability, "PAIRS_MAX", pairs)
    text = (
        'rule a when header.x == "1" { allow }\nrule d when header.x in ["1", "2"] { deny }\n'
        'rule p when header.x == "2" { priority 2 }\nprovider anthropic { }\n'
    )

    assert [one.code for one in check("team.hmp", MemoryFiles({"team.hmp": text})).diagnostics] == codes


AGENTS = {
    "a rule for all calls": ("rule all { lane x }\n", ["lane y"]),
    "rules that together are for all": (
        "rule a when stream { lane x }\nrule b when not stream { lane y }\n",
        ["lane y"],
    ),
    "a rule for the agent": ("rule a when agent == ci { lane x; priority 1 }\n", ["lane y", "priority 5"]),
    "a rule for its team": ("rule a when team == t { priority 1 }\n", ["priority 5"]),
    "what is refused, and the rest": ("rule a when stream { deny }\nrule b when not stream { lane x }\n", ["lane y"]),
    "a rule for another agent": ("rule a when agent == other { lane x }\n", []),
    "some of its calls": ("rule a when stream { lane x }\n", []),
    "the same value": ("rule a { lane y; priority 2 }\n", ["priority 5"]),
    "another setting": ("rule a { deadline 5s }\n", []),
}


@pytest.mark.parametrize(("rules", "dead"), AGENTS.values(), ids=AGENTS)
def test_what_rules_decide_of_every_call_of_an_agent_its_own_setting_does_not(rules: str, dead: list[str]) -> None:
    text = (
        "lane x { }\nlane y { }\nteam t { }\nagent ci { token env(T); team t; lane y; priority 5 }\n"
        f"agent other {{ token env(U); lane x }}\nprovider anthropic {{ key env(K) }}\n{rules}"
    )
    found = check("team.hmp", MemoryFiles({"team.hmp": text})).diagnostics

    of_ci = [text[one.span.start : one.span.end] for one in found if one.code == "HM304" and "`ci`" in one.message]
    assert of_ci == dead


def test_a_setting_that_agents_inherit_is_dead_only_if_it_is_for_all_of_them() -> None:
    text = (
        "lane x { }\nlane y { }\ndefaults agent { lane y }\nagent a { token env(T) }\nagent b { token env(U) }\n"
        "rule r when agent == a { lane x }\nprovider anthropic { key env(K) }\n"
    )
    one, both = (
        [found.code for found in check("team.hmp", MemoryFiles({"team.hmp": policy})).diagnostics]
        for policy in (text, text.replace("agent == a", "agent in [a, b]"))
    )

    assert (one, both) == ([], ["HM304"])
