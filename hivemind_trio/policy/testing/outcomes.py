"""Outcomes of a decided call, for `expect`.

A call that is denied has no lane, no priority, no provider: what it does not have is not equal to anything, and neither
more nor less. So `expect lane == batch` fails for a call that is denied, and `expect lane == batch or denied` does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, final

import attrs

from hivemind_trio.model import Decider, Decision, Request, Verdict
from hivemind_trio.policy.compile.binder import SymbolTable
from hivemind_trio.policy.compile.codegen import BUILT_IN, Router
from hivemind_trio.policy.diagnostics.diagnostic import Label
from hivemind_trio.policy.language.condition_eval import field_values, holds
from hivemind_trio.policy.language.condition_typing import (
    AllOf,
    Always,
    AnyOf,
    Condition,
    Flag,
    Like,
    Member,
    Negation,
    Relation,
)
from hivemind_trio.policy.language.unit_text import duration, money
from hivemind_trio.policy.program.call_facts import Facts, literal, request_of
from hivemind_trio.policy.program.program import Program
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.source.string_literals import quote

Leaf: TypeAlias = Flag | Relation | Member | Like
Values: TypeAlias = Mapping[str, str | int | bool]

OF_A_CALL_THAT_GOES: Final = ("lane", "priority", "deadline", "provider", "model", "retry", "max-output")
"""Fields that a denied call does not have, and a held one has. `provider` and `model`: where it goes, and as what."""


VERDICTS: Final = ("admitted", "held", "denied")
"""Flags of which a call has one, on arrival."""


def is_outcome(field: str) -> bool:
    """Return True if the field is an outcome, and no fact of the call."""
    return field in OF_A_CALL_THAT_GOES or field in VERDICTS or field.startswith(("tag.", "budget."))


@final
@attrs.frozen(kw_only=True)
class Decided:
    """A call, decided."""

    request: Request
    treatment: Decision
    values: Values
    """Values of every field that an `expect` can read; a field that the call lacks is missing."""
    routed: str | None
    """Provider before any rule; None: none."""
    why_denied: str
    """Empty: it is not."""

    @classmethod
    def of(cls, program: Program, facts: Facts) -> Decided:
        """Such a call, decided by the compiled program."""
        request = request_of(program, facts)
        if "claim" in facts:
            # That an agent is meant is said by the test, whatever the door believes.
            request = attrs.evolve(request, claimed=str(facts["claim"]))
        return cls.of_request(program, request)

    @classmethod
    def of_request(cls, program: Program, request: Request) -> Decided:
        """Return the request as the compiled program decides it."""
        treatment = program.decide(request)
        routed = Router.of(program.providers).route(request.apis, request.model)
        values = field_values(request, agent=treatment.agent, team=treatment.team, provider=routed)
        for field in OF_A_CALL_THAT_GOES:
            values.pop(field, None)
        why = _why_denied(program, treatment)
        is_held = not why and treatment.verdict is Verdict.HOLD
        values |= {"admitted": not why and not is_held, "held": is_held, "denied": bool(why)}
        values |= {f"tag.{tag}": True for tag in treatment.tags}
        if not why:
            assert treatment.provider is not None
            values |= {"lane": treatment.lane, "priority": treatment.priority, "provider": treatment.provider}
            values |= {"model": treatment.model or request.model}
            values |= {"retry": treatment.retry or program.providers[treatment.provider].retry}
            values |= {f"budget.{budget}": True for budget in treatment.budgets}
            if treatment.max_output is not None:
                values["max-output"] = treatment.max_output
            if treatment.deadline_ns is not None:
                values["deadline"] = treatment.deadline_ns
        return cls(request=request, treatment=treatment, values=values, routed=routed, why_denied=why)

    @property
    def is_served(self) -> bool:
        """True if any provider takes it."""
        return self.treatment.provider is not None

    def asked(self, condition: Condition) -> bool:
        """Return True if it meets a condition of a rule, or of a `given any`."""
        treatment = self.treatment
        values = field_values(self.request, agent=treatment.agent, team=treatment.team, provider=self.routed)
        return holds(condition, values)


def _why_denied(program: Program, treatment: Decision) -> str:
    if program.rejects_as_unknown(treatment.agent):
        return "its caller is not a declared agent"
    if treatment.verdict is Verdict.DENY:
        return quote(treatment.message)
    return "no provider serves it" if treatment.provider is None else ""


def meets(condition: Condition, values: Values) -> bool:
    """Return True if an expectation is met."""
    match condition:
        case Always():
            return True
        case AllOf(items=items):
            return all(meets(item, values) for item in items)
        case AnyOf(items=items):
            return any(meets(item, values) for item in items)
        case Negation(item=item):
            return not meets(item, values)
        case Flag(field=field):
            return bool(values.get(field, False))
        case _ if condition.field not in values and not condition.field.startswith(("header.", "meta.")):
            return is_met_by_nothing(condition)
        case _:
            return holds(condition, values)


def is_met_by_nothing(test: Leaf) -> bool:
    """Return True if a test of a field holds for a call without it."""
    return isinstance(test, Relation) and test.op == "!="


def leaves(condition: Condition) -> Iterator[Leaf]:
    """Its tests, in order."""
    match condition:
        case Always():
            return
        case AllOf(items=items) | AnyOf(items=items):
            for item in items:
                yield from leaves(item)
        case Negation(item=item):
            yield from leaves(item)
        case _:
            yield condition


# ---- for people ----


def got(condition: Condition, decided: Decided, declarations: SymbolTable) -> tuple[str, tuple[Label, ...]]:
    """Return the actual outcome in words with its decider, and the places of the decisions."""
    parts: tuple[Condition, ...] = (condition,)
    if isinstance(condition, AllOf):
        parts = tuple(item for item in condition.items if not meets(item, decided.values))
    fields = dict.fromkeys(test.field for part in parts for test in leaves(part))
    if decided.why_denied and any(field in OF_A_CALL_THAT_GOES or field == "admitted" for field in fields):
        fields = {"denied": None}
    shown: dict[str, None] = {}
    labels: dict[Label, None] = {}
    for field in fields:
        decider = _decider(field, decided)
        shown[_shown(field, decided) + (f", {_by(decider)}" if decider is not None else "")] = None
        place = _place(decider, declarations) if decider is not None else None
        if place is not None:
            what = "the verdict" if field in VERDICTS else f"the {field}"
            labels[Label(place, f"decides {what}")] = None
    return "; ".join(shown), tuple(labels)


def _shown(field: str, decided: Decided) -> str:
    values = decided.values
    if field in VERDICTS:
        if values["held"]:
            return f"held: {quote(decided.treatment.message)}"
        return f"denied: {decided.why_denied}" if decided.why_denied else "admitted"
    if field.startswith(("tag.", "budget.")):
        family, _, name = field.partition(".")
        return f"{'' if values.get(field) else 'no '}{family} `{name}`"
    if field not in values:
        return f"no {field}" if field in OF_A_CALL_THAT_GOES else f'{field} ""'
    match field, values[field]:
        case _, bool(value):
            return f"{'' if value else 'not '}{field}"
        case "client.address", int(value):
            return f"{field} {quote(literal(field, value))}"
        case "deadline", int(value):
            return f"{field} {duration(value)}"
        case "cost", int(value):
            return f"{field} {money(value)}"
        case (
            "session.cost" | "session.age" | "time" | "plan.session" | "plan.week" | "plan.month",
            int(value),
        ):
            return f"{field} {literal(field, value)}"
        case _, str(value) if is_text(field):
            return f"{field} {quote(value)}"
        case _, value:
            return f"{field} {value}"


def is_text(field: str) -> bool:
    """Return True if its values are written in quotes."""
    return field in ("model", "path", "method", "date", "client.address") or field.startswith(("header.", "meta."))


def _decider(field: str, decided: Decided) -> Decider | None:
    """Return the decider; None: it is a fact, or no declaration decided it."""
    if field in VERDICTS:
        by = decided.treatment.decided["verdict"]
        is_its = decided.treatment.verdict is Verdict.DENY or not decided.why_denied
        return by if is_its and by.kind != BUILT_IN.kind else None
    return decided.treatment.decided.get(field) if field in OF_A_CALL_THAT_GOES else None


def _by(decider: Decider) -> str:
    match decider.kind:
        case BUILT_IN.kind:
            return "by no rule"
        case "defaults":
            return f"by `defaults {decider.name}`"
        case _:
            return f"by {decider.kind} `{decider.name}`"


def _place(decider: Decider, declarations: SymbolTable) -> Span | None:
    if decider.kind == "defaults":
        return declarations.defaults[decider.name].item.head.span
    declared = declarations.of(decider.kind).get(decider.name)
    return declared.name_span if declared is not None else None
