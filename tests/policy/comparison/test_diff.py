"""Which calls two policies treat differently: every example is one, and every one has an example.

`differences` below is a plain reading of two treatments, made for these tests and told nothing by what it judges.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Decision, Verdict
from hivemind_trio.policy import CallChange, Checked, MemoryFiles, call_changes, check, diff, parse_request, render_diff
from hivemind_trio.policy.comparison import call_differences
from hivemind_trio.policy.comparison.call_differences import Parting, Triple
from hivemind_trio.policy.comparison.comparison import turns_of
from hivemind_trio.policy.comparison.decisions import NO, treated
from hivemind_trio.policy.program.call_facts import Facts, request_of
from hivemind_trio.wire import apis_of
from tests.policy.drawn import policies
from tests.policy.strategies import AGENTS, FLAGS, NUMBERS, TEXTS

REST = "provider anthropic { }\n"


def checked(text: str, name: str = "team.hmp") -> Checked:
    found = check(name, MemoryFiles({name: text}))
    assert found.program is not None, found.diagnostics
    return found


# ---- a plain reading ----


def refused(one: Checked, treatment: Decision) -> bool:
    assert one.program is not None
    unknown = treatment.agent == "unknown" and one.program.server.refuse_unknown
    return unknown or treatment.verdict is Verdict.DENY or treatment.provider is None


def of_setting(one: Checked, treatment: Decision, setting: str) -> object:
    """What a setting comes to, by the name that the comparison gives it."""
    assert one.program is not None
    kind, _, name = setting.partition(" ")
    match kind:
        case "tag":
            return name in treatment.tags
        case "warning":
            return name in [f'"{words}"'.replace('too "large"', 'too \\"large\\"') for words in treatment.warnings]
        case "budget":
            return name in treatment.budgets
        case "deadline":
            return treatment.deadline_ns
        case "affinity":
            return treatment.affinity_ns
        case "max-output":
            return treatment.max_output
        case "retry":
            return treatment.retry or one.program.providers[treatment.provider or ""].retry
        case "verdict":
            unknown = treatment.agent == "unknown" and one.program.server.refuse_unknown
            return "unknown" if unknown else (treatment.verdict, treatment.message)
        case _:
            return getattr(treatment, kind)


def differ(pair: tuple[Checked, Checked], treatments: tuple[Decision, Decision]) -> bool:
    """Whether a call is treated differently, as far as that can be noticed."""
    settings_ = ["agent", "verdict"]
    gone = [refused(one, treatment) for one, treatment in zip(pair, treatments, strict=True)]
    if not any(gone):
        settings_ += ["provider", "team", "model", "lane", "priority", "deadline", "retry", "affinity", "max-output"]
        settings_ += [f"tag {tag}" for treatment in treatments for tag in treatment.tags]
        settings_ += [f"budget {budget}" for treatment in treatments for budget in treatment.budgets]
    one, other = ([of_setting(*side, setting) for setting in settings_] for side in zip(pair, treatments, strict=True))
    return one != other or gone[0] is not gone[1]


def treatments(pair: tuple[Checked, Checked], facts: Facts) -> tuple[Decision, Decision]:
    programs = [one.program for one in pair]
    before, after = (program.decide(request_of(program, facts)) for program in programs if program is not None)
    return before, after


# ---- pairs of policies, and calls ----


def declarations(text: str) -> list[str]:
    """Each with its further lines."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if line[:1].isspace() and found:
            found[-1] += line
        else:
            found.append(line)
    return found


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """The policy after a change of the kind that people make: something moved, left out, or from another policy."""
    parts = declarations(text)
    rules = [number for number, part in enumerate(parts) if part.startswith(("rule ", "agent ", "budget "))]
    assume(rules)
    chosen = draw(st.sampled_from(rules))
    match draw(st.integers(0, 3)):
        case 0:
            del parts[chosen]
        case 1:
            parts.insert(draw(st.sampled_from(rules)), parts.pop(chosen))
        case 2:
            parts[chosen] = parts[chosen].replace(" or ", " and ").replace("<", ">").replace("==", "!=")
        case _:
            parts[chosen] = parts[chosen].replace("priority 5", "priority 6").replace("deny", "allow")
            parts = [part.replace("deadline 5s", "deadline 2h") for part in parts]
    return "".join(parts)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    old = draw(policies()).text
    return old, draw(policies()).text if draw(st.integers(0, 3)) == 0 else draw(edited(old))


def both_checked(texts: tuple[str, str]) -> tuple[Checked, Checked]:
    """An edit may have made an error of it, of which others tell."""
    new = check("team.hmp", MemoryFiles({"team.hmp": texts[1]}))
    assume(new.program is not None)
    return checked(texts[0]), new


@st.composite
def calls(draw: st.DrawFn) -> Facts:
    """What a call brings; its numbers stand at the edges of what the policies ask."""
    facts: dict[str, Any] = {"hour": 0, "weekday": 1}
    for field in draw(st.lists(st.sampled_from(sorted(NUMBERS)), max_size=3, unique=True)):
        if field not in ("tokens.total", "cost"):
            facts[field] = draw(st.sampled_from(sorted(NUMBERS[field].values())))
    for field in draw(st.lists(st.sampled_from(sorted(TEXTS)), max_size=4, unique=True)):
        facts[field.lower() if field.startswith("header.") else field] = draw(st.sampled_from(TEXTS[field]))
    facts |= dict.fromkeys(draw(st.lists(st.sampled_from(FLAGS), max_size=2, unique=True)), True)
    who = draw(st.sampled_from(["", "token", "claim"]))
    if who:
        facts[who] = draw(st.sampled_from(AGENTS))
    facts["api"] = draw(st.sampled_from(["anthropic", "openai", "gemini"]))
    return facts


# ---- the properties ----


SETTINGS: Final = ("agent", "provider", "team", "model", "lane", "priority", "deadline", "retry")
ATTEMPTS: Final = settings().max_examples // 3


@pytest.mark.slow
@settings(max_examples=ATTEMPTS)
@given(texts=pairs(), asked=st.lists(calls(), min_size=5, max_size=5))
def test_every_example_is_treated_differently_and_every_difference_has_an_example(
    texts: tuple[str, str], asked: list[Facts]
) -> None:
    pair = both_checked(texts)

    found, complete = call_changes(*pair)

    for call in found:
        holds_as_explain_has_it(pair, call)
    event(f"complete: {complete}, {'some' if found else 'no'} changes")
    if complete:
        covers(pair, {turn.setting for call in found for turn in call.turns}, asked)


@pytest.mark.slow
@settings(max_examples=ATTEMPTS // 2)
@given(texts=pairs(), asked=st.lists(calls(), min_size=10, max_size=10))
def test_what_is_asked_of_all_calls_at_once_needs_no_likely_calls_to_be_complete(
    texts: tuple[str, str], asked: list[Facts]
) -> None:
    pair = both_checked(texts)
    assert pair[0].program is not None
    assert pair[1].program is not None
    programs = pair[0].program, pair[1].program
    parting, seen = Parting(*pair, by_path=False), set[Triple]()

    for facts in parting.calls(seen):
        seen |= {(turn.setting, turn.before, turn.after) for turn in turns_of(programs, facts)}

    if parting.complete:
        covers(pair, {setting for setting, _, _ in seen}, asked)


def covers(pair: tuple[Checked, Checked], named: set[str], asked: list[Facts]) -> None:
    """What changes for any of these calls is among the settings that were named."""
    for facts in asked:
        both = treatments(pair, facts)
        if not named:
            assert not differ(pair, both), facts
        if not any(refused(*side) for side in zip(pair, both, strict=True)):
            for setting in SETTINGS:
                one, other = (of_setting(*side, setting) for side in zip(pair, both, strict=True))
                assert one == other or setting in named, (setting, facts)


def holds_as_explain_has_it(pair: tuple[Checked, Checked], call: CallChange) -> None:
    """The words, read as `explain` reads them at any time of any day, and decided by both."""
    assert call.turns
    for hour, weekday in (("3", "2"), ("15", "7")):
        words = [word for part in call.example for word in shlex.split(part)]
        both = [parse_request(one, words, defaults={"hour": hour, "weekday": weekday}) for one in pair]
        before, after = (one.program.decide(it) for one, it in zip(pair, both, strict=True) if one.program is not None)
        for turn in call.turns:
            if turn.setting not in ("provider", "verdict"):
                assert of_setting(pair[0], before, turn.setting) != of_setting(pair[1], after, turn.setting), turn
            else:
                assert differ(pair, (before, after)), turn


@pytest.mark.slow
@settings(max_examples=ATTEMPTS // 2)
@given(texts=pairs())
def test_explain_reproduces_every_example_at_the_real_door(texts: tuple[str, str]) -> None:
    # Ollama shares paths with both Anthropic and OpenAI.
    texts = (texts[0].replace("gemini", "ollama"), texts[1].replace("gemini", "ollama"))
    pair = both_checked(texts)

    found, _ = call_changes(*pair, apis_of=apis_of)

    for call in found:
        reproduced(pair, call)
    event(f"on a path: {any(word.startswith('path=') for call in found for word in call.example)}")


def reproduced(pair: tuple[Checked, Checked], call: CallChange) -> None:
    """The words, read as `explain` reads them, are treated as the comparison says."""
    words = [word for part in call.example for word in shlex.split(part)]
    for one, side in zip(pair, ("before", "after"), strict=True):
        assert one.program is not None
        request = parse_request(one, words, defaults={"hour": "3", "weekday": "2"}, apis_of=apis_of)
        shown = treated(one.program, one.program.decide(request))
        for turn in call.turns:
            assert shown.get(turn.setting, NO) == getattr(turn, side), (words, turn)


def test_a_renamed_account_is_a_rename_and_a_forgotten_was_is_reported() -> None:
    def text(account: str) -> str:
        return f"provider p {{ api anthropic; account {account} {{ key env(A) }}; account b {{ key env(B) }} }}\n"

    old = checked(text("a"))
    (renamed,) = diff(old, checked(text("prod was a"))).changes
    assert (renamed.kind, renamed.name, renamed.verb, renamed.before) == ("account", "p.prod", "renamed", "p.a")
    lost = diff(old, checked(text("prod"))).changes[0]
    assert (lost.name, lost.effect.code) == ("p.prod", "HM703")
    assert "write `was a`" in lost.effect.says


def test_an_example_on_a_path_of_several_dialects_is_reproduced() -> None:
    old = 'provider ollama { serves ["llama*"] }\nprovider anthropic { serves ["claude-*"] }\nlane a { }\n'
    pair = checked(old), checked(old + 'rule r when path == "/v1/messages" and provider == ollama { lane a }\n')

    found, complete = call_changes(*pair, apis_of=apis_of)

    assert complete
    assert [turn.setting for call in found for turn in call.turns] == ["lane"]
    for call in found:
        reproduced(pair, call)


# ---- another model, and providers for some models ----

DOORS: Final[tuple[Facts, ...]] = (
    *({"path": path} for path in ("/v1/messages", "/v1/chat/completions", "/v1/other", "/", "/nowhere")),
    {"path": "/v1/other", "header.anthropic-version": "2023-06-01"},
    *({"api": api} for api in ("anthropic", "openai", "gemini", "ollama")),
)
"""Calls of every set of dialects that providers of the drawn policies speak."""


@st.composite
def rewriting_pairs(draw: st.DrawFn) -> tuple[Checked, Checked]:
    """Two policies of which one sends calls with another model, and one has a provider for some models."""
    old, new = draw(pairs())
    # Ollama shares paths with both Anthropic and OpenAI.
    pair = both_checked((old.replace("gemini", "ollama"), new.replace("gemini", "ollama")))
    assume(old != new)
    assume(any("model" in rule.settings for one in pair for rule in one.declarations.of("rule").values()))
    assume(any(provider.serves for one in pair if one.program for provider in one.program.providers.values()))
    return pair


def every_call(pair: tuple[Checked, Checked], random: Random) -> Iterator[Facts]:
    """At every door with every model and every caller; of the rest of a call something."""
    who: list[Facts] = [{}, *({how: name} for name in AGENTS for how in ("token", "claim"))]
    for door, model, caller in product(DOORS, TEXTS["model"], who):
        facts: dict[str, Any] = {"hour": random.randrange(24), "weekday": random.randint(1, 7)}
        facts |= {field: random.choice(sorted(NUMBERS[field].values())) for field in ("tokens.in", "tokens.max-out")}
        facts |= {"attempt": random.randint(1, 6), "method": random.choice(TEXTS["method"])}
        facts |= {field.lower(): random.choice(TEXTS[field]) for field in ("header.x-job", "header.X-Kind")}
        yield {**facts, **{flag: random.random() < 0.5 for flag in FLAGS}, **door, **caller, "model": model}


@pytest.mark.slow
def test_what_another_model_changes_is_found_or_shown_to_be_nothing_with_the_real_doors() -> None:
    completes: list[bool] = []

    @settings(max_examples=ATTEMPTS // 2)
    @given(pair=rewriting_pairs(), seed=st.integers(0, 99))
    def each(pair: tuple[Checked, Checked], seed: int) -> None:
        assert pair[0].program is not None
        assert pair[1].program is not None
        programs = pair[0].program, pair[1].program

        parting, seen = Parting(*pair, by_path=True), set[Triple]()

        for facts in parting.calls(seen):  # without likely calls, which would hide what it misses
            seen |= {(turn.setting, turn.before, turn.after) for turn in turns_of(programs, facts, apis_of)}

        completes.append(parting.complete)
        if parting.complete:
            for facts in every_call(pair, Random(seed)):
                turns = {(turn.setting, turn.before, turn.after) for turn in turns_of(programs, facts, apis_of)}
                assert turns <= seen, facts

    each()
    assert completes.count(False) <= 0.02 * len(completes) + 1


REWRITING: Final = (
    'provider ollama { serves ["llama*"] }\nprovider anthropic { serves ["claude-*"] }\nlane a { }\n'
    'rule local when tools { model "llama3" }\n'
)

OTHER_MODELS = {
    # policy, rule that is new -> what changes, without likely calls
    "a model that no provider serves": (
        REWRITING, 'rule r when model == "claude-x" and not tools { model "gpt-5" }',
        {("provider", "anthropic", "none, so it is refused")},
    ),
    "one that is served in another dialect": (
        REWRITING, 'rule r when model == "claude-x" and not tools { model "llama3" }',
        {
            ("provider", "anthropic", "ollama"),
            ("provider", "none, so it is refused", "ollama"),
            ("provider", "anthropic", "none, so it is refused"),
            ("model", "the one asked for", '"llama3"'),
        },
    ),
    "a call that Anthropic serves, sent to Ollama": (
        REWRITING, "rule r when provider == anthropic and tools { lane a }", {("lane", "default", "a")},
    ),
    "one that no provider serves either way": (
        REWRITING, 'rule r when provider == anthropic and model ~ "gpt-*" and tools { lane a }', set(),
    ),
    "one that is not served, whatever its lane": (
        REWRITING.replace('"llama3"', '"gpt-5"'), "rule r when tools { lane a }", set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "rule", "changes"), OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_where_another_model_goes_follows_from_the_dialects_of_the_call(
    old: str, rule: str, changes: set[Triple]
) -> None:
    pair = checked(old), checked(f"{old}{rule}\n")
    assert pair[0].program is not None
    assert pair[1].program is not None
    programs = pair[0].program, pair[1].program
    parting, seen = Parting(*pair, by_path=True), set[Triple]()

    for facts in parting.calls(seen):
        seen |= {(turn.setting, turn.before, turn.after) for turn in turns_of(programs, facts, apis_of)}

    assert parting.complete
    assert seen == changes
    found, complete = call_changes(*pair, apis_of=apis_of)
    assert complete
    for call in found:
        reproduced(pair, call)


# ---- one by one ----


LANES = REST + "lane a { }\nlane b { priority 3; deadline 5s }\n"
TWO = 'provider anthropic { serves ["claude-*"] }\nprovider openai { }\nprovider ollama { }\n'
LOCAL = "provider ollama { }\n"

CASES = {
    # before, after -> example, setting, before, after
    "a rule moved up": (
        LANES + "rule x when stream { lane a }\nrule y when tools { lane b }\n",
        LANES + "rule y when tools { lane b }\nrule x when stream { lane a }\n",
        {("stream=true tools=true", "lane", "a", "b")},
    ),
    "a bound moved": (
        LANES + "rule x when tokens.total >= 10k and not images { lane a }\n",
        LANES + "rule x when tokens.total > 10k and not images { lane a }\n",
        {("tokens.max-out=10000", "lane", "a", "default")},
    ),
    "a glob narrowed": (
        LANES + 'rule x when path ~ "/v1/*" { lane a }\n',
        LANES + 'rule x when path ~ "/v1/m*" { lane a }\n',
        {("path=/v1/", "lane", "a", "default")},
    ),
    "a lane's own settings": (
        LANES + "rule x when hour in 8..17 { lane b }\n",
        LANES.replace("5s", "9s") + "rule x when hour in 8..17 { lane b }\n",
        {("hour=12", "deadline", "5s", "9s")},
    ),
    "a night that begins later": (
        LANES + "rule x when time in 22:00..06:30 { lane b }\n",
        LANES + "rule x when time in 22:30..06:30 { lane b }\n",
        {("time=22:00", "lane", "b", "default")},
    ),
    "a hold for a denial": (
        LANES + 'rule x when stream { deny "no" }\n',
        LANES + 'rule x when stream { hold "later" }\n',
        {("stream=true", "verdict", 'denied: "no"', 'held: "later"')},
    ),
    "a hold by day": (
        LANES,
        LANES + 'rule x when time in 8:00..17:59 and model == "m" { hold "later"; lane b }\n',
        {
            ("model=m time=12:00", "verdict", "admitted", 'held: "later"'),
            ("model=m time=12:00", "lane", "default", "b"),
        },
    ),
    "another holiday": (
        LANES + 'rule x when date ~ ["*-12-25"] { lane b }\n',
        LANES + 'rule x when date ~ ["*-12-25", "2026-12-26"] { lane b }\n',
        {("date=2026-12-26", "lane", "default", "b")},
    ),
    "who is who on some days only": (
        LANES + "agent ci when weekday <= 5 { lane a }\n",
        LANES,
        {("weekday=1", "agent", "ci", "unknown"), ("weekday=1", "lane", "a", "default")},
    ),
    "a token asked for": (
        LANES + "agent ci { lane a }\n",
        LANES + "agent ci { lane a; token env(T) }\n",
        {("claim=ci", "agent", "ci", "unknown"), ("claim=ci", "lane", "a", "default")}
        | {("token=ci", "agent", "unknown", "ci"), ("token=ci", "lane", "default", "a")},
    ),
    "an agent by its condition": (
        LANES + "agent ci { lane a }\n",
        LANES + 'agent ci when header.x-ci == "yes" { lane a }\n',
        {("header.x-ci=yes", "agent", "unknown", "ci"), ("header.x-ci=yes", "lane", "default", "a")},
    ),
    "unknown callers": (
        LANES,
        LANES + "server { unknown-agent deny }\n",
        {("", "verdict", "admitted", "denied: no declared agent")},
    ),
    "a provider more": (
        LOCAL,
        LOCAL + "provider anthropic { }\n",
        {("api=anthropic", "provider", "none, so it is refused", "anthropic")},
    ),
    "another provider for a model": (
        TWO,
        TWO.replace("claude-*", "claude-opus-*"),
        {("api=anthropic model=claude-sonnet-4-5", "provider", "anthropic", "none, so it is refused")},
    ),
    "another class of its provider": (
        REST + "retry slow { }\n",
        "provider anthropic { retry slow }\nretry slow { }\n",
        {("", "retry", "default", "slow")},
    ),
    "another price": (
        LANES + 'model "m" { price input $1/Mtok }\nrule x when cost > $1 { lane a }\n',
        LANES + 'model "m" { price input $2/Mtok }\nrule x when cost > $1 { lane a }\n',
        {("model=m tokens.in=999999", "lane", "default", "a")},
    ),
    "words and tags": (
        LANES + "rule x when tools { tag one; tag both }\n",
        LANES + 'rule x when tools { tag both; tag two; warn "slow" }\n',
        {("tools=true", "tag one", "yes", "no"), ("tools=true", "tag two", "no", "yes")}
        | {("tools=true", 'warning "slow"', "no", "yes")},
    ),
    "whom a budget is for": (
        LANES + "budget x when stream { requests 5/s }\n",
        LANES + "budget x when images { requests 5/s }\n",
        {("stream=true", "budget x", "yes", "no"), ("images=true", "budget x", "no", "yes")},
    ),
    "a model replaced": (
        LANES,
        LANES + 'rule x when model ~ "claude-*" { model "claude-haiku-4-5" }\n',
        {("model=claude-opus-4-1", "model", "the one asked for", '"claude-haiku-4-5"')},
    ),
    "another lane for what is denied": (
        LANES + "rule x when stream { deny }\n",
        LANES + "rule x when stream { deny }\nrule y when stream { lane b }\n",
        set(),
    ),
    "a rule that decides nothing": (
        LANES + "rule x when stream { lane a }\n",
        LANES + "rule x when stream { lane a }\nrule y when stream and tools { lane b }\n",
        set(),
    ),
    "a cap": (REST, "provider anthropic { concurrency 3 }\n", set()),
}


@pytest.mark.parametrize(("before", "after", "expected"), CASES.values(), ids=CASES)
def test_a_change_of_calls_is_shown_at_a_call(
    before: str, after: str, expected: set[tuple[str, str, str, str]]
) -> None:
    found, complete = call_changes(checked(before), checked(after), apis_of=apis_of)

    shown = {(" ".join(call.example), turn.setting, turn.before, turn.after) for call in found for turn in call.turns}
    assert expected <= shown
    assert complete
    assert expected or not shown


def test_who_speaks_several_dialects_on_one_path_is_asked_on_that_path() -> None:
    old, new = checked(LOCAL), checked(LOCAL + "provider anthropic { }\n")

    found, _ = call_changes(old, new, apis_of=apis_of)

    turns = {(call.example, turn.before, turn.after) for call in found for turn in call.turns}
    assert (("path=/v1/messages",), "ollama", "anthropic") in turns


def test_a_file_of_secrets_beside_the_policy_is_the_same_wherever_the_policy_is() -> None:
    text = 'provider anthropic { key file("key") }\nagent ci { token file("ci") }\n'

    assert not diff(checked(text, "before/team.hmp"), checked(text, "after/team.hmp"))
    assert diff(checked(text, "before/team.hmp"), checked(text.replace('"key"', '"other"'), "after/team.hmp"))


def test_more_than_can_be_asked_is_said_to_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_differences, "QUESTIONS_MAX", 0)
    old = LANES + "rule x when stream and tools { lane a }\nrule y when images { lane b }\n"
    new = LANES + "rule y when images { lane b }\nrule x when stream and tools and attempt > 3 { lane a }\n"

    _, complete = call_changes(checked(old), checked(new))

    assert not complete


# ---- what the front page shows ----


def test_the_readme_shows_what_diff_says_after_the_edits_that_it_shows(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    shown = (root / "README.md", root / "hivemind_trio" / "docs" / "simulate.md")
    text = "".join(path.read_text(encoding="utf-8") for path in shown)
    (old,) = re.findall(r"```hmp\n(hmp 1\n\nprovider anthropic .*?)```", text, re.DOTALL)
    (said,) = re.findall(r"```\n(team\.hmp -> new\.hmp: .*?)```", text, re.DOTALL)
    (edit,) = re.findall(r"```sh\n(sed .*? team\.hmp) > new\.hmp\n", text, re.DOTALL)
    (tmp_path / "team.hmp").write_text(old)
    new = subprocess.run(["/bin/sh", "-c", edit], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert render_diff(diff(checked(old), checked(new, "new.hmp")), "text") == said
