"""What tests in a policy say of calls: by example, and of all calls, held against calls one by one."""

from __future__ import annotations

import re
from random import Random
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Api, Request
from hivemind_trio.policy import (
    Checked,
    MemoryFiles,
    RanTest,
    Severity,
    check,
    given_text,
    run_tests,
    unexercised,
    with_tests,
)
from hivemind_trio.policy.program.policy_tests import GivenAny, Run
from hivemind_trio.policy.testing import prover as universal
from hivemind_trio.policy.testing.outcomes import Decided, meets
from hivemind_trio.policy.testing.prover import Counterexample, NoCall, Proven, Universe, Unproven
from tests.policy.drawn import Drawn, policies
from tests.policy.solver.test_regions import some_calls
from tests.policy.strategies import TEXTS

POLICY: Final = """
provider anthropic { key env(A); retry patient }
provider openai { key env(O); serves ["gpt-*"] }
retry patient { attempts 9 }
retry never { attempts 1 }
lane people { deadline 60s; priority 5 }
lane batch { }
team product { }
agent ci { token env(CI_TOKEN); team product; lane batch }
agent script when header.x-job != "" { priority 1 }
budget all { cost $5/day }
budget of-ci when agent == ci { tokens 1M/hour }
rule stop when model ~ "claude-opus-*" { deny "no" }
rule cheap when tokens.in > 100k { model "gpt-4.1-mini"; tag big-one }
rule there when path == "/openai" { provider openai; retry never }
rule urgent when header.x-priority == "urgent" { lane people; deadline 5s }
rule night when hour in 22..23 { priority 9 }
"""


def policy(text: str) -> Checked:
    checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
    assert checked.program is not None, [one for one in checked.diagnostics if one.severity is Severity.ERROR]
    return checked


def came_of(test: str, text: str = POLICY) -> RanTest:
    (found,) = run_tests(policy(f'{text}test "t" {{\n{test}\n}}\n'))
    return found


HOLDS: Final = {
    "nothing is said": ("given { }", "admitted and lane == default and priority == 0 and provider == anthropic"),
    "an agent by its token": ("given { agent ci }", "agent == ci and team == product and lane == batch"),
    "an agent by its claim": ("given { agent script }", "agent == script and priority == 1"),
    "an agent by its condition": ('given { header.X-Job "7" }', "agent == script"),
    "nobody": ("given { agent unknown }", "agent == unknown and team == none"),
    "denied": ('given { model "claude-opus-4-1" }', "denied and not admitted"),
    "who is denied has no lane": ('given { model "claude-opus-4-1" }', "lane != default and not lane == default"),
    "nor a priority": ('given { model "claude-opus-4-1" }', "not priority == 0 and not priority < 5 and denied"),
    "nor budgets": ('given { model "claude-opus-4-1"; agent ci }', "not budget.of-ci and not budget.all"),
    "sent with another model": (
        "given { tokens.in 200k; api openai }",
        'model == "gpt-4.1-mini" and provider == openai and tag.big-one',
    ),
    "and so at another provider": (
        'given { tokens.in 200k; model "claude-x"; api openai }', "provider == openai",
    ),
    "or at none": ("given { tokens.in 200k; api gemini }", "denied"),
    "the model that it asks for": ('given { model "claude-x" }', 'model ~ "claude-*" and not tag.big-one'),
    "a rule's provider": ('given { path "/openai"; model "claude-x" }', "provider == openai and retry == never"),
    "the provider's retry class": ("given { }", "retry == patient"),
    "the default retry class": ('given { model "gpt-4.1" }', "retry == default and provider == openai"),
    "a rule's deadline": ('given { header.x-priority "urgent" }', "deadline == 5s and lane == people"),
    "no deadline": ("given { agent ci }", "deadline != 5s and not deadline <= 5m and not deadline > 5m"),
    "a lane's priority": ('given { header.x-priority "urgent" }', "priority == 5"),
    "before an agent's": ("given { hour 22; agent script }", "priority == 9"),
    "no limit of the output": ("given { agent ci }", "max-output != 5 and not max-output <= 5 and not max-output > 5"),
    "budgets": ("given { agent ci }", "budget.of-ci and budget.all"),
    "a budget of others": ("given { }", "not budget.of-ci"),
    "a flag without its value": ("given { stream; tools true; images false }", "stream and tools and not images"),
    "facts": ("given { tokens.in 3; tokens.max-out 4; attempt 2; weekday 7 }", "tokens.total == 7 and weekday == 7"),
    "the least of everything": ("given { }", 'hour == 0 and weekday == 1 and attempt == 1 and path == ""'),
    "a time and a date": (
        'given { time 22:30; date "2026-12-25" }', "hour == 22 and time in 22:00..6:00 and weekday == 5",
    ),
    "an address": (
        'given { client.address "10.1.2.3" }', 'client.address in ["10.0.0.0/8", "::1"] and client.address != "::1"',
    ),
    "of all calls, an address is in one of two networks": (
        'given any when client.address == "10.0.0.0/7"',
        'client.address == "10.0.0.0/8" or client.address == "11.0.0.0/8"',
    ),
    "a weekday is in a week of its own": ("given { weekday 3 }", 'date == "2001-01-10"'),
    "of all calls, a time is in its hour": ("given any when time in 22:00..23:59", "priority == 9 or denied"),
    "of all calls, a date has its weekday": ('given any when date == "2026-12-25"', "weekday == 5"),
    "of all calls, a day each year": ('given any when date ~ "*-12-25"', 'not date ~ "*-01-*"'),
    "several calls": ("given { hour 22 }\ngiven { hour 23 }", "priority == 9"),
    "of all calls": ("given any when hour == 22", "priority == 9 or denied"),
    "of all calls that are served": ('given any when model ~ "gpt-4*"', "admitted"),
    "of all calls by two settings": (
        "given any when agent == ci", "(lane == batch and priority in [0, 9]) or lane == people or denied",
    ),
    "of all calls with another model": (
        "given any when tokens.in > 100k and hour == 22",
        'denied or (model == "gpt-4.1-mini" and tag.big-one and priority == 9)',
    ),
    "of all calls, what they ask for": (
        "given any when tokens.in < 100k", 'denied or model == "" or model ~ "*" and not model ~ "claude-opus-*"',
    ),
    "of all calls, that there is no deadline": (
        'given any when header.x-priority != "urgent"', "not deadline < 1h and not deadline >= 1h",
    ),
    "of all calls, a retry class": ('given any when path == "/openai"', "retry == never or denied"),
    "of all calls, an agent's priority before its lane's": (
        'given any when agent == script and header.x-priority == "urgent" and hour < 22', "priority == 1 or denied",
    ),
    "of all calls, a tag": ("given any when tokens.in > 200k", "tag.big-one"),
    "of all calls, a budget": ("given any when agent == ci", "budget.of-ci or denied"),
}  # fmt: skip


@pytest.mark.parametrize(("asks", "expected"), HOLDS.values(), ids=HOLDS)
def test_what_holds_is_said_to_and_its_opposite_is_not(asks: str, expected: str) -> None:
    assert came_of(f"{asks}\nexpect {expected}").diagnostics == ()
    (found,) = came_of(f"{asks}\nexpect not ({expected})").diagnostics
    assert found.code == "HM501"


ACCOUNTS: Final = """
provider anthropic {
  account product { key env(A); for customers }
  account staff   { key env(B); for [work, default] }
}
provider openai { account staff { key env(C) } }
lane customers { }
lane work { }
agent assistant { token env(T); lane customers }
agent people { token env(U); lane work }
rule no when model ~ "*opus*" { deny "no" }
rule there when path == "/openai" { provider openai }
"""

BY_ACCOUNT: Final = {
    "a lane that it names": ("given { agent assistant; api anthropic }", "account.product and not account.staff", ""),
    "of another provider": ('given { agent assistant; path "/openai" }', "account.staff and not account.product", ""),
    "a denied call": ('given { agent people; model "claude-opus-4" }', "not account.staff and denied", ""),
    "of all calls": ("given any when agent == people and path == \"/v1/messages\"", "account.staff or denied", ""),
    "of all calls, what is wrong": (
        "given any when agent == people", "not account.staff or denied",
        "counterexample: `given { agent people }`",
    ),
    "of all calls, by the provider": (
        'given any when agent == assistant', "account.product or denied",
        "counterexample: `given { agent assistant; path \"/openai\" }`",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("asks", "expected", "help_"), BY_ACCOUNT.values(), ids=BY_ACCOUNT)
def test_an_account_is_expected_by_provider_and_lane(asks: str, expected: str, help_: str) -> None:
    found = came_of(f"{asks}\nexpect {expected}", ACCOUNTS).diagnostics

    assert [one.help for one in found] == ([help_] if help_ else [])


def test_calls_use_the_accounts_that_are_expected() -> None:
    program = policy(ACCOUNTS).program
    assert program is not None
    asked = {"assistant": "product", "people": "staff"}
    for agent, account in asked.items():
        lane = program.decide(Request(token_agent=agent, apis=(Api.ANTHROPIC,))).lane
        (taking,) = [pool.name for pool in program.providers["anthropic"].pools() if pool.takes_lane(lane)]

        assert taking == f"anthropic.{account}"


GOT: Final = {
    "a rule": ("given { hour 22 }", "priority == 2", "got priority 9, by rule `night`", "night"),
    "an agent": ("given { agent ci }", "lane == people", "got lane batch, by agent `ci`", "ci"),
    "a lane": ('given { header.x-priority "urgent" }', "priority == 2", "got priority 5, by lane `people`", "people"),
    "nobody": ("given { }", "lane == people", "got lane default, by no rule", None),
    "what is missing": ("given { }", "deadline > 1s", "got no deadline, by no rule", None),
    "a verdict": ('given { model "claude-opus-4-1" }', "lane == default", 'got denied: "no", by rule `stop`', "stop"),
    "nobody serves it": ("given { api gemini; tokens.in 1 }", "admitted", "got denied: no provider serves it", None),
    "facts": ("given { stream }", "not stream and hour == 3", "got stream; hour 0", None),
    "a time and a date": (
        'given { time 22:05; date "2026-12-25" }', 'time < 22:00 and date ~ "*-01-*"',
        'got time 22:05; date "2026-12-25"', None,
    ),
    "a text": ('given { model "m" }', 'model ~ "claude-*"', 'got model "m", by no rule', None),
    "what fails alone": (
        "given { hour 22 }", "lane == default and priority == 2", "got priority 9, by rule `night`", "night",
    ),
    "a tag": ("given { }", "tag.big-one and budget.of-ci", "got no tag `big-one`; no budget `of-ci`", None),
}  # fmt: skip


@pytest.mark.parametrize(("asks", "expected", "note", "decider"), GOT.values(), ids=GOT)
def test_a_failure_says_what_it_got_and_points_at_who_decided_it(
    asks: str, expected: str, note: str, decider: str | None
) -> None:
    (found,) = came_of(f"{asks}\nexpect {expected}").diagnostics

    assert found.note == note
    pointed = [policy(POLICY).declarations.report.text(label.span) for label in found.labels]
    assert pointed == ([] if decider is None else [decider])


COUNTEREXAMPLES: Final = {
    "the hour": ("agent == ci", "priority == 0 or lane == people or denied", "given { agent ci; hour 22 }"),
    "the hour, where minutes are asked for": (
        "agent == ci and time in 21:30..22:10", "priority == 0 or lane == people or denied or time > 22:00",
        "given { agent ci; hour 22 }",
    ),
    "the date": (
        'agent == ci and hour == 22 and not date ~ "20*-0*"', 'denied or lane == people or date ~ "*-10-*"',
        'given { agent ci; hour 22; date "2001-11-10" }',
    ),
    "an address": (
        'client.address == "11.0.0.0/8" and agent == ci', "denied", 'given { agent ci; client.address "11.0.0.0" }',
    ),
    "a header": ("tokens.in > 5", "lane != people", 'given { tokens.in 6; header.x-priority "urgent" }'),
    "who is denied, where all others are right": (
        'model ~ "claude-*" and hour == 22', "priority == 9", 'given { model "claude-opus-4-1"; hour 22 }',
    ),
    "nothing but defaults": ("agent == unknown", "priority > 0", "given { hour 0 }"),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "expected", "counterexample"), COUNTEREXAMPLES.values(), ids=COUNTEREXAMPLES)
def test_a_counterexample_has_what_matters(asked: str, expected: str, counterexample: str) -> None:
    (found,) = came_of(f"given any when {asked}\nexpect {expected}").diagnostics

    assert found.help == f"counterexample: `{counterexample}`"


def test_every_expectation_of_a_test_is_reported() -> None:
    found = came_of("given { }\nexpect denied\nexpect admitted\nexpect lane == people")

    assert [one.code for one in found.diagnostics] == ["HM501"] * 2
    assert found.failed


def test_callers_that_are_nobody_are_denied_where_the_policy_says_so() -> None:
    text = POLICY + "server { unknown-agent deny }\n"

    assert came_of("given { }\nexpect denied", text).diagnostics == ()
    assert came_of("given any when agent == unknown\nexpect denied", text).diagnostics == ()
    (found,) = came_of("given { }\nexpect admitted", text).diagnostics
    assert found.note == "got denied: its caller is not a declared agent"


def test_a_failing_test_leaves_the_program_and_is_an_error() -> None:
    checked = policy(POLICY + 'test "t" { given { }; expect denied }\n')

    found = with_tests(checked, run_tests(checked))

    assert found.program is not None
    assert [one.severity for one in found.diagnostics] == [Severity.ERROR]


# ---- what is not known ----

GLOBS = " and ".join(f'not model ~ "*{letter}{letter}{letter}*"' for letter in "abcdefghijkl")


@pytest.mark.slow
def test_what_cannot_be_proven_is_tried_and_said_to_be() -> None:
    (found,) = came_of(f"given any when hour == 22 and {GLOBS}\nexpect priority == 9 or denied").diagnostics

    assert (found.code, found.severity) == ("HM390", Severity.INFO)
    (tried,) = re.findall(r"for the (\d+) calls tried", found.message)
    assert int(tried) > 20


def test_what_cannot_be_proven_can_still_be_refuted_by_example() -> None:
    (found,) = came_of(f"given any when {GLOBS}\nexpect priority < 9 or denied").diagnostics

    assert found.code == "HM501"
    assert found.help == "counterexample: `given { hour 22 }`"


def test_a_call_of_no_known_dialect_goes_to_the_only_provider_with_whatever_model() -> None:
    rule = 'provider anthropic { serves ["?pt-*"] }\nrule r { model "claude-haiku-4-5" }\n'

    (one,) = run_tests(policy(rule + 'test "t" {\ngiven any\nexpect denied\n}\n'))

    assert [found.code for found in one.diagnostics] == ["HM501"]


def test_what_asks_too_many_questions_is_not_called_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(universal, "QUESTIONS_MAX", 2)

    (found,) = came_of("given any when hour == 22\nexpect priority == 9 or denied").diagnostics

    assert found.code == "HM390"


def test_a_call_that_is_sent_with_another_model_may_go_elsewhere_for_it() -> None:
    asked = 'tokens.in > 100k and model ~ "claude-*" and path != "/openai"'

    (found,) = came_of(f"given any when {asked}\nexpect provider == anthropic or denied").diagnostics

    assert found.code == "HM501"


def test_where_another_model_is_served_is_known_for_every_dialect() -> None:
    # Where another model is served depends on the dialect, and so does its retry class: not every pair is possible.
    pairs = "provider == openai and retry == default or provider == anthropic and retry == patient"

    assert came_of(f"given any when tokens.in > 100k\nexpect {pairs} or retry == never or denied").diagnostics == ()


def test_what_is_found_and_not_confirmed_is_not_called_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(universal, "_tellings", lambda _: iter(()))
    monkeypatch.setattr(universal, "candidates", lambda *_, **__: iter(()))

    (found,) = came_of("given any when tokens.in > 5\nexpect lane != people").diagnostics

    assert found.code == "HM390"


# ---- against calls one by one ----


@st.composite
def expectations(draw: st.DrawFn, checked: Checked, depth: int = 2) -> str:
    """Text of an `expect` of calls of this policy."""
    if depth and draw(st.booleans()):
        parts = [draw(expectations(checked, depth - 1)) for _ in range(draw(st.integers(1, 3)))]
        joined = f" {draw(st.sampled_from(['and', 'or']))} ".join(f"({part})" for part in parts)
        return f"not ({joined})" if draw(st.integers(0, 3)) == 0 else joined
    program = checked.program
    assert program is not None
    equal = draw(st.sampled_from(["==", "!="]))
    order = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    leaves = [
        "denied",
        "admitted",
        f"lane {equal} {draw(st.sampled_from(sorted(program.lanes)))}",
        f"retry {equal} {draw(st.sampled_from(sorted(program.retries)))}",
        f"provider {equal} {draw(st.sampled_from(sorted(program.providers)))}",
        f"priority {order} {draw(st.sampled_from([0, 1, 5, 100]))}",
        f"deadline {order} {draw(st.sampled_from(['5s', '1m30s', '2h']))}",
        f"agent {equal} {draw(st.sampled_from([*sorted(program.agents), 'unknown']))}",
        f'model {equal} "{draw(st.sampled_from([one for one in TEXTS["model"] if one != "*"]))}"',
        'model ~ "claude-*"',
        "stream",
        f"tokens.in {order} {draw(st.sampled_from(['1k', '100k']))}",
        *(f"budget.{name}" for name in program.budgets),
        *(
            f"tag.{one.value}"
            for rule in checked.declarations.of("rule").values()
            for one in rule.settings.get("tag", ())
        ),
    ]
    return draw(st.sampled_from(leaves))


ASKED: Final = ("stream", "not tools", "hour in 8..20", 'model ~ "claude-*"', "agent == unknown")


@st.composite
def questions(draw: st.DrawFn) -> tuple[Drawn, str, str]:
    drawn = draw(policies())
    checked = policy(drawn.text)
    asked = " and ".join(draw(st.lists(st.sampled_from(ASKED), max_size=2, unique=True)))
    return drawn, asked, draw(expectations(checked))


@pytest.mark.slow
@given(question=questions(), seed=st.integers(0, 99))
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_proven_holds_for_every_call_and_what_is_refuted_fails_as_a_test(
    question: tuple[Drawn, str, str], seed: int
) -> None:
    drawn, asked, expected = question
    test = f"given any{' when ' * bool(asked)}{asked}\nexpect {expected}"
    checked = policy(f'{drawn.text}\ntest "t" {{\n{test}\n}}\n')
    assert checked.program is not None
    asks = checked.tests[0].asks
    assert not isinstance(asks, Run)
    (ask,) = asks
    assert isinstance(ask, GivenAny)
    (expectation,) = checked.tests[0].expects
    decided = [Decided.of_request(checked.program, one) for one in some_calls(checked, Random(seed), 250)]
    there = [one for one in decided if one.is_served and one.asked(ask.condition)]
    failing = [one for one in there if not meets(expectation.condition, one.values)]

    found = Universe.of(checked).judge(ask.condition, expectation.condition)

    match found:
        case Proven():
            assert not failing
        case NoCall():
            assert not there
        case Unproven():
            assert not failing, "and an example would have shown it"
        case Counterexample(facts=facts):
            pasted = f'{drawn.text}\ntest "t" {{\n{given_text(facts, checked.program)}\nexpect {expected}\n}}\n'
            (again,) = run_tests(policy(pasted))
            assert [one.code for one in again.diagnostics] == ["HM501"]


@pytest.mark.parametrize(
    "does", ['warn "soon"', "tag slow", "affinity model max 5m", "max-output 4k", "lane slow; priority 2"]
)
def test_whatever_a_rule_does_all_calls_exercise_it(does: str) -> None:
    rule = f'rule r when model == "x*" {{ {does} }}\n'
    checked = policy("provider anthropic { }\nlane slow { }\n" + rule + 'test "t" {\ngiven any\nexpect admitted\n}\n')

    (one,) = run_tests(checked, coverage=True)

    assert one.exercised == {"r"}


@pytest.mark.slow
@given(drawn=policies(), seed=st.integers(0, 99))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_rule_that_decides_something_for_a_call_is_exercised_by_all_calls(drawn: Drawn, seed: int) -> None:
    checked = policy(drawn.text + '\ntest "t" {\ngiven any\nexpect admitted or denied\n}\n')
    assert checked.program is not None
    (one,) = run_tests(checked, coverage=True)

    deciding: set[str] = set()
    for request in some_calls(checked, Random(seed), 150):
        call = Decided.of_request(checked.program, request)
        if call.is_served:
            settings_ = ("verdict",) if call.why_denied else tuple(call.treatment.decided)
            by = (call.treatment.decided[setting] for setting in settings_)
            deciding.update(decider.name for decider in by if decider.kind == "rule")

    assert deciding <= one.exercised
    assert {found.code for found in unexercised(checked, [one])} <= {"HM311"}


HELD: Final = (
    'rule later when header.x-later == "yes" and time in 9:00..16:59 { hold "after five"; priority 3 }\n'
    "provider anthropic { }\n"
)


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ('given { header.x-later "yes"; time 9:00 }', "held and not admitted and not denied and priority == 3"),
        ('given any when header.x-later == "yes" and time in 9:00..16:59', "held and priority == 3"),
        ("given any when time < 9:00", "admitted and not held"),
        ("given any", "admitted or held"),
    ],
)
def test_a_held_call_is_neither_admitted_nor_denied_and_has_a_lane(asks: str, expected: str) -> None:
    held = policy(f'{HELD}test "t" {{\n{asks}\nexpect {expected}\n}}')
    not_so = policy(f'{HELD}test "t" {{\n{asks}\nexpect not ({expected})\n}}')

    assert [ran.diagnostics for ran in run_tests(held)] == [()]
    assert [one.code for ran in run_tests(not_so) for one in ran.diagnostics] == ["HM501"]


def test_a_hold_is_told_with_its_rule_and_found_as_a_counterexample() -> None:
    given_one = policy(HELD + 'test "t" { given { header.x-later "yes"; time 9:00 }; expect admitted }')
    given_any = policy(HELD + 'test "t" { given any when time in 10:00..11:00; expect admitted }')

    ((one,), (other,)) = (ran.diagnostics for checked in (given_one, given_any) for ran in run_tests(checked))

    assert one.note == 'got held: "after five", by rule `later`'
    assert other.help == 'counterexample: `given { time 10:00; header.x-later "yes" }`'
