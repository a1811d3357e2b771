"""Decisions of a policy as text: a treatment and its decision lists, for the comparison of two policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, final

import attrs

from hivemind_trio.model import Decision, Verdict
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.compile.codegen import Rule
from hivemind_trio.policy.language.condition_typing import AllOf, Always, AnyOf, Condition, Relation
from hivemind_trio.policy.language.unit_text import duration
from hivemind_trio.policy.program.program import NO_TEAM, UNKNOWN_AGENT, Program
from hivemind_trio.policy.solver.decision_lists import HELD, Value, lists_of, rules_of
from hivemind_trio.policy.solver.decision_lists import DecisionEntry as Typed
from hivemind_trio.policy.source.string_literals import quote

ADMITTED: Final = "admitted"
REFUSED_UNKNOWN: Final = "denied: no declared agent"
NOT_SERVED: Final = "none, so it is refused"
AS_ASKED: Final = "the one asked for"
YES, NO = "yes", "no"


@final
@attrs.frozen
class DecisionRow:
    """One condition of a list."""

    condition: Condition
    value: str
    """As `treated` shows it."""


def treated(program: Program, treatment: Decision) -> dict[str, str]:
    """Return a decision setting by setting, as far as it matters: a refused call has no lane.

    The group of a provider's limits is the provider's matter, and follows from it and the model.
    """
    shown = {"agent": treatment.agent}
    if program.rejects_as_unknown(treatment.agent):
        return shown | {"verdict": REFUSED_UNKNOWN}
    if treatment.verdict is Verdict.DENY:
        return shown | {"verdict": _denied(treatment.message)}
    shown["verdict"] = _held(treatment.message) if treatment.verdict is Verdict.HOLD else ADMITTED
    if treatment.provider is None:
        return shown | {"provider": NOT_SERVED}
    return (
        shown
        | {
            "provider": treatment.provider,
            "team": treatment.team,
            "model": quote(treatment.model) if treatment.model is not None else AS_ASKED,
            "lane": treatment.lane,
            "priority": str(treatment.priority),
            "deadline": _deadline(treatment.deadline_ns),
            "retry": treatment.retry or program.providers[treatment.provider].retry,
            "affinity": _deadline(treatment.affinity_ns),
            "max-output": _most(treatment.max_output),
        }
        | {f"tag {tag}": YES for tag in treatment.tags}
        | {f"warning {quote(warning)}": YES for warning in treatment.warnings}
        | {f"budget {budget}": YES for budget in treatment.budgets}
    )


def _denied(message: str) -> str:
    return f"denied: {quote(message)}"


def _held(message: str) -> str:
    return f"held: {quote(message)}"


def goes(verdict: str) -> bool:
    """Return True if a call with this verdict goes, at once or later, so that its lane matters."""
    return not verdict.startswith("denied: ")


def _deadline(value_ns: Value) -> str:
    return duration(value_ns) if isinstance(value_ns, int) else "none"


def _most(value: Value) -> str:
    return f"{value:,} tokens" if isinstance(value, int) else "none"


def decisions(checked: Checked) -> Mapping[str, tuple[DecisionRow, ...]]:
    """Return setting -> its rows, the last for every call that is left. The policy has no errors."""
    program, typed = checked.program, lists_of(checked)
    assert program is not None
    rules = {rule.name: rule for rule in rules_of(checked)}
    lists = {
        "agent": [DecisionRow(Relation("agent", "==", name), name) for name in (*program.agents, UNKNOWN_AGENT)],
        "verdict": [_verdict(one, rules) for one in typed["verdict"]],
        "provider": [_of_place(one, NOT_SERVED) for one in typed["provider"]],
        "team": [DecisionRow(Relation("team", "==", name), name) for name in (*program.teams, NO_TEAM)],
        "model": [shown for one in typed["model"] for shown in _model(one)],
        "lane": [DecisionRow(one.condition, str(one.value)) for one in typed["lane"]],
        "priority": [DecisionRow(one.condition, str(one.value)) for one in typed["priority"]],
        "deadline": [DecisionRow(one.condition, _deadline(one.value)) for one in typed["deadline"]],
        "retry": _retries(typed["retry"], program),
        "max-output": [DecisionRow(one.condition, _most(one.value)) for one in typed["max-output"]],
        "affinity": [DecisionRow(one.condition, _deadline(one.value)) for one in typed["affinity"]],
    }
    for name, entries in typed.items():
        kind, _, word = name.partition(".")
        if word:
            lists[f"{kind} {word}"] = [DecisionRow(one.condition, YES if one.value else NO) for one in entries]
    for warning in dict.fromkeys(warning for rule in rules.values() for warning in rule.warnings):
        holding = tuple(rule.condition for rule in rules.values() if warning in rule.warnings)
        lists[f"warning {quote(warning)}"] = [DecisionRow(AnyOf(holding), YES), DecisionRow(Always(), NO)]
    return {setting: tuple(entries) for setting, entries in lists.items()}


def _verdict(one: Typed, rules: Mapping[str, Rule]) -> DecisionRow:
    if one.value == HELD:
        return DecisionRow(one.condition, _held(rules[one.rule].effects["verdict"][1]))
    if one.value:
        return DecisionRow(one.condition, ADMITTED)
    return DecisionRow(one.condition, _denied(rules[one.rule].effects["verdict"][1]) if one.rule else REFUSED_UNKNOWN)


def _of_place(one: Typed, nowhere: str) -> DecisionRow:
    return DecisionRow(one.condition, nowhere if one.value is None else str(one.value))


def _retries(typed: Iterable[Typed], program: Program) -> list[DecisionRow]:
    """Return the rules' classes, then the providers', which are often the same everywhere."""
    said = [DecisionRow(one.condition, str(one.value)) for one in typed if one.rule]
    (any_retry, *others) = dict.fromkeys(provider.retry for provider in program.providers.values())
    if not others:
        return [*said, DecisionRow(Always(), any_retry)]
    return [*said, *(_of_place(one, "") for one in typed if not one.rule)]


def _model(one: Typed) -> Iterator[DecisionRow]:
    """To be sent with the model that it asks for is to be sent as it is."""
    if isinstance(one.value, str):
        yield DecisionRow(AllOf((one.condition, Relation("model", "==", one.value))), AS_ASKED)
    yield DecisionRow(one.condition, quote(one.value) if isinstance(one.value, str) else AS_ASKED)
