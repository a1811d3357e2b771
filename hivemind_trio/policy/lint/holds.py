"""Holds that never end (HM423), or that end after the call's deadline (HM422)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hivemind_trio.model import Verdict
from hivemind_trio.model.dates import MINUTES
from hivemind_trio.policy.compile.binder import BoundDeclaration, SymbolTable
from hivemind_trio.policy.diagnostics.diagnostic import Label
from hivemind_trio.policy.language.condition_typing import (
    PLAN_SHARES,
    AllOf,
    Always,
    AnyOf,
    Condition,
    Negation,
    Relation,
)
from hivemind_trio.policy.language.unit_text import duration
from hivemind_trio.policy.program.call_facts import shown, words
from hivemind_trio.policy.program.program import UNKNOWN_AGENT, Program
from hivemind_trio.policy.solver.boundary_calls import readings
from hivemind_trio.policy.solver.box_cover import Cube, bits
from hivemind_trio.policy.solver.call_space import CallSpace
from hivemind_trio.policy.solver.partition import Numbers
from hivemind_trio.policy.solver.satisfiability import Space

from .timing import deadline_of

ENDING: Final = ("time", "date", "weekday", *PLAN_SHARES, "plan.overage")
"""Fields whose change ends a hold: by the clock, and by readings of the plan."""
MINUTE_NS: Final = 60 * 1_000_000_000

_Decider = tuple[str, Condition]
"""`allow`, `hold` or `deny`, and for which calls."""


def check_holds(
    declarations: SymbolTable, conditions: Mapping[str, Mapping[str, Condition | None]], program: Program
) -> None:
    """Report holds of a policy without errors."""
    if not program.holds:
        return
    deciders: list[_Decider] = []
    if program.server.refuse_unknown:
        deciders.append(("deny", Relation("agent", "==", UNKNOWN_AGENT)))
    holding: list[tuple[BoundDeclaration, int]] = []
    routed = [Relation("provider", "==", name) for name in program.providers]
    sent: list[Condition] = []
    for name, declared in declarations.of("rule").items():
        condition = conditions["rule"][name]
        assert condition is not None  # the policy has no errors
        verdict = next((str(one) for one in Verdict if str(one) in declared.settings), None)
        if "provider" in declared.settings:
            sent.append(condition)
        if verdict is not None:
            if verdict == "hold":
                holding.append((declared, len(deciders)))
            deciders.append((verdict, condition))
    served = AnyOf((*routed, *sent))
    space = Space.of([CallSpace.of(program, conditions)], [served, *(one for _, one in deciders)])
    ended = _ended(space, deciders, served)
    for declared, number in holding:
        above = (Negation(condition) for _, condition in deciders[:number])
        own = space.cubes(AllOf((served, deciders[number][1], *above)))
        if own is None:
            continue
        if ended is None or not _never_ends(declarations, declared, space, program, own, ended):
            _outlasts(declarations, declared, space, deciders[: number + 1])


def _ended(space: Space, deciders: Sequence[_Decider], served: Condition) -> list[Cube] | None:
    """Return the calls that are held no more at some time or reading; None: too many boxes."""
    free = space.of_fields(ENDING)
    found = list(space.cubes(served, negated=True) or ())
    above: list[Condition] = []
    for verdict, condition in (*deciders, ("allow", Always())):
        if verdict == "hold":
            above.append(Negation(condition))
            continue
        boxes = space.cubes(AllOf((condition, *above)))
        if boxes is None:
            return None
        found += [_without(box, free) for box in boxes]
    return found


def _without(box: Cube, variables: Iterable[int]) -> Cube:
    return {variable: mask for variable, mask in box.items() if variable not in variables}


def _never_ends(
    declarations: SymbolTable,
    declared: BoundDeclaration,
    space: Space,
    program: Program,
    own: Sequence[Cube],
    ended: Sequence[Cube],
) -> bool:
    witness = space.find_open(own, ended)
    if witness is None or program.decide(witness.request()).verdict is not Verdict.HOLD:
        return False
    found = next(readings(witness, by_path=False))
    facts = {name: value for name, value in found.items() if name not in (*ENDING, "api") and value != ""}
    call = " ".join(words(shown(facts, [program]))) or "any"
    declarations.report.warn(
        "HM423",
        f"rule `{declared.name}` holds some calls for ever",
        declared.settings["hold"][0].item.span,
        note=f"at every time and every reading of the plan, for example `{call}`",
        help="deny such calls, or let a time, a date or a plan reading in the condition end the hold",
    )
    return True


def _outlasts(
    declarations: SymbolTable, declared: BoundDeclaration, space: Space, deciders: Sequence[_Decider]
) -> None:
    """Report a hold that lasts by the clock for longer than the deadline of its calls."""
    deadline = deadline_of(declarations, declared)
    if deadline is None:
        return
    above = (Negation(condition) for verdict, condition in deciders[:-1] if verdict != "hold")
    boxes = space.cubes(AllOf((deciders[-1][1], *above))) or ()
    longest = max((_minutes(space, box) for box in boxes if space.is_met([box])), default=0)
    if longest * MINUTE_NS > deadline.value:
        declarations.report.warn(
            "HM422",
            f"rule `{declared.name}` holds calls for up to {duration(longest * MINUTE_NS)}, longer than their deadline",
            declared.settings["hold"][0].item.span,
            labels=(Label(deadline.span, "the deadline counts from arrival"),),
            help="lengthen or delete the deadline",
        )


def _minutes(space: Space, box: Cube) -> int:
    """Return the minutes for which the clock keeps a call in a box at a stretch, at least; 0: it does not."""
    for number in space.of_fields(["time"]):
        if number in box:
            (classes,) = space.variables[number].classes.values()
            assert isinstance(classes, Numbers)
            return _longest([classes.span(cell) for cell in bits(box[number])])
    return MINUTES if any(number in box for number in space.of_fields(["date", "weekday"])) else 0


def _longest(spans: Sequence[tuple[int, int]]) -> int:
    """Return the length of the longest run of spans, which are in order, around midnight too."""
    runs: list[list[int]] = []
    for low, high in spans:
        if runs and runs[-1][1] + 1 == low:
            runs[-1][1] = high
        else:
            runs.append([low, high])
    if len(runs) > 1 and runs[0][0] == 0 and runs[-1][1] == MINUTES - 1:
        runs[0][0] = runs.pop()[0] - MINUTES
    return max(high + 1 - low for low, high in runs)
