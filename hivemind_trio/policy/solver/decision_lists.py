"""A policy as lists: of each thing that is decided, conditions from the top, and what the first that holds gives.

What `compile/codegen.py` does step by step (rules, then the agent, then the lane, then the built-in) is one list here
for each thing, so that something can be said of all calls at once. `comparison/decisions.py` has them as words, to
compare two policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, final

import attrs

from hivemind_trio.model import Verdict
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.compile.codegen import Identity, Rule
from hivemind_trio.policy.compile.lowering import Conditions, identity_of, lane_defaults_of, rule_of, unknown_of
from hivemind_trio.policy.language.condition_typing import (
    AllOf,
    Always,
    AnyOf,
    Condition,
    Negation,
    Relation,
    routed_as,
)
from hivemind_trio.policy.language.globs import any_matcher
from hivemind_trio.policy.program.program import DEFAULT_LANE, UNKNOWN_AGENT, Program


@final
@attrs.frozen
class AsAsked:
    """Model that a call asks for."""


AS_ASKED: Final = AsAsked()

HELD: Final = "held"
"""Verdict of a call that a rule holds."""

Value: TypeAlias = str | int | bool | AsAsked | None
"""None: the call does not have it."""


@final
@attrs.frozen
class DecisionEntry:
    """One condition of a list."""

    condition: Condition
    value: Value
    """Value of the entry."""
    rule: str = ""
    """That says so; empty: no rule does."""


Entries: TypeAlias = Sequence[DecisionEntry]


def lists_of(checked: Checked) -> Mapping[str, Entries]:
    """Return the lists of a policy without errors; each ends with an entry for every call that is left.

    `verdict` gives one of `VERDICTS`, the last entry of `provider` what no provider serves.
    """
    program, declarations = checked.program, checked.declarations
    assert program is not None
    rules = rules_of(checked)
    nobody = Conditions(agents={}, rules={})
    identities = {name: identity_of(declarations, one, nobody) for name, one in declarations.of("agent").items()}
    identities[UNKNOWN_AGENT] = unknown_of(declarations)
    in_lane = {name: lane_defaults_of(declarations, name) for name in program.lanes}

    lanes = [*_said(rules, "lane"), *_by_agent(identities, "lane"), DecisionEntry(Always(), DEFAULT_LANE)]
    places = _providers(rules, program)

    def of_lane(entry: DecisionEntry, setting: str) -> DecisionEntry:
        found = getattr(in_lane[str(entry.value)], setting)
        return DecisionEntry(entry.condition, found[0] if found is not None else None)

    def of_place(entry: DecisionEntry) -> DecisionEntry:
        retry = None if entry.value is None else program.providers[str(entry.value)].retry
        return attrs.evolve(entry, value=retry, rule="")

    priorities = (of_lane(entry, "priority") for entry in lanes)
    found: dict[str, Entries] = {
        "verdict": _verdicts(rules, program),
        "provider": places,
        "lane": lanes,
        "model": [*_said(rules, "model"), DecisionEntry(Always(), AS_ASKED)],
        "priority": [
            *_said(rules, "priority"),
            *_by_agent(identities, "priority"),
            *(DecisionEntry(one.condition, one.value or 0) for one in priorities),
        ],
        "deadline": [*_said(rules, "deadline"), *(of_lane(entry, "deadline_ns") for entry in lanes)],
        "retry": [*_said(rules, "retry"), *map(of_place, places)],
        "max-output": [*_said(rules, "max-output"), DecisionEntry(Always(), None)],
        "affinity": [*_said(rules, "affinity"), DecisionEntry(Always(), None)],
    }
    for setting in dict.fromkeys(setting for rule in rules for setting in rule.effects):
        # What no `expect` asks for can still be what a rule is there for.
        found.setdefault(setting, [*_said(rules, setting), DecisionEntry(Always(), None)])
    for tag in dict.fromkeys(tag for rule in rules for tag in rule.tags):
        holding = tuple(rule.condition for rule in rules if tag in rule.tags)
        found[f"tag.{tag}"] = [DecisionEntry(AnyOf(holding), True), DecisionEntry(Always(), False)]
    for name, condition in checked.conditions["budget"].items():
        if condition is not None:
            found[f"budget.{name}"] = [DecisionEntry(condition, True), DecisionEntry(Always(), False)]
    return found


def rules_of(checked: Checked) -> list[Rule]:
    """Return the rules of a policy without errors, in order."""
    conditions = checked.conditions["rule"]
    return [
        rule_of(declared, condition)
        for name, declared in checked.declarations.of("rule").items()
        if (condition := conditions[name]) is not None
    ]


def _said(rules: Iterable[Rule], setting: str) -> list[DecisionEntry]:
    return [
        DecisionEntry(rule.condition, rule.effects[setting], rule.name) for rule in rules if setting in rule.effects
    ]


def _by_agent(identities: Mapping[str, Identity], setting: str) -> list[DecisionEntry]:
    found = []
    for name, identity in identities.items():
        decided = getattr(identity, setting)
        if decided is not None:
            found.append(DecisionEntry(Relation("agent", "==", name), decided[0]))
    return found


VERDICTS: Final[Mapping[Verdict, Value]] = {Verdict.ALLOW: True, Verdict.HOLD: HELD, Verdict.DENY: False}


def _verdicts(rules: Iterable[Rule], program: Program) -> list[DecisionEntry]:
    refused = [DecisionEntry(Relation("agent", "==", UNKNOWN_AGENT), False)] if program.server.refuse_unknown else []
    said = [
        DecisionEntry(rule.condition, VERDICTS[rule.effects["verdict"][0]], rule.name)
        for rule in rules
        if "verdict" in rule.effects
    ]
    return [*refused, *said, DecisionEntry(Always(), True)]


def _providers(rules: Iterable[Rule], program: Program) -> list[DecisionEntry]:
    rules = list(rules)
    found = _said(rules, "provider")
    if any(provider.serves for provider in program.providers.values()):
        for rule in rules:
            if "model" in rule.effects:
                found += _as_model(rule, program)
    found += [DecisionEntry(Relation("provider", "==", name), name) for name in program.providers]
    return [*found, DecisionEntry(Always(), None)]


def _as_model(rule: Rule, program: Program) -> Iterator[DecisionEntry]:
    """Yield where a rule's calls go with the model that it sets, by the call's dialect."""
    model = rule.effects["model"]
    for name, provider in program.providers.items():
        # The only provider gets calls of no known dialect, whatever it serves.
        if len(program.providers) == 1 or any_matcher(provider.serves or ("*",))(model):
            yield DecisionEntry(AllOf((rule.condition, Relation(routed_as(model), "==", name))), name)
    yield DecisionEntry(rule.condition, None)


def served_of(entries: Sequence[tuple[Condition, bool]]) -> Condition:
    """Return what a call meets that some provider serves.

    Args:
        entries: The conditions of the list of `provider`, and whether a provider stands behind each.
    """
    unserved: list[Condition] = []
    served: list[Condition] = []
    for condition, is_served in entries:
        if is_served:
            served.append(AllOf((condition, *map(Negation, unserved))) if unserved else condition)
        else:
            unserved.append(condition)
    return AnyOf(tuple(served))
