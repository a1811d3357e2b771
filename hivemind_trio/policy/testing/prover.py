"""Prover of expectations about every call: a proof, a counterexample, or neither.

A policy is a list of conditions for each thing that can be expected (`solver/decision_lists.py`). Which entries of the
lists a call is decided by makes each test of the expectation true or false, so that of the expectation only facts of
the call are left; and whether a call is decided so and does not meet the rest is a question with an exact answer
(`solver/satisfiability.py`). Entries beside each other that make no difference for the expectation are one.

What is found is decided by the compiled program before it is believed, and made as plain as it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, final

import attrs

from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.compile.codegen import Rule
from hivemind_trio.policy.language.condition_eval import holds
from hivemind_trio.policy.language.condition_typing import AllOf, Always, AnyOf, Condition, Negation
from hivemind_trio.policy.program.call_facts import Facts
from hivemind_trio.policy.program.policy_tests import GivenAny
from hivemind_trio.policy.program.program import Program
from hivemind_trio.policy.solver.boundary_calls import KNOWN_MODELS, candidates, readings
from hivemind_trio.policy.solver.box_cover import Cover, Cube
from hivemind_trio.policy.solver.call_space import CallSpace
from hivemind_trio.policy.solver.decision_lists import AS_ASKED, HELD, Entries, Value, lists_of, served_of
from hivemind_trio.policy.solver.moments import Instead, alternatives, timed
from hivemind_trio.policy.solver.satisfiability import GaveUp, Nothing, Of, Space, Witness

from .outcomes import OF_A_CALL_THAT_GOES, Decided, Leaf, is_met_by_nothing, is_outcome, leaves, meets

QUESTIONS_MAX: Final = 2_000
"""Asked for one expectation; beyond it nothing is proven."""

DRAWN_MAX: Final = 2_000
"""Calls that are tried where nothing is proven."""

NEVER: Final = AnyOf(())

OF_VERDICT: Final[Mapping[str, Value]] = {"admitted": True, "held": HELD, "denied": False}
"""Outcome -> the verdict that it stands for."""


@final
@attrs.frozen
class Proven:
    """Proven for every call."""


@final
@attrs.frozen
class NoCall:
    """There is no call that is asked about."""


@final
@attrs.frozen
class Unproven:
    """Unproven; it holds for so many calls that were tried."""

    tried: int


@final
@attrs.frozen
class Counterexample:
    """A call for which it does not hold."""

    facts: Facts
    decided: Decided


Judgement: TypeAlias = Proven | NoCall | Unproven | Counterexample

Chosen: TypeAlias = Mapping[str, Value]
"""Setting -> what a call is given; of those that have been looked at so far."""


@final
@attrs.frozen(eq=False)
class _List:
    """One setting's list, and the cubes of its entries."""

    entries: Entries
    above: Sequence[int | None]
    """Number of an entry -> the cubes of all entries above it; None: there are too many."""


@final
@attrs.define(eq=False)
class Universe:
    """All calls of a policy without errors, divided by what its rules and its tests ask."""

    _program: Program
    _conditions: Sequence[Condition]
    """Conditions of rules and agents, for candidates."""
    _lists: Mapping[str, _List]
    _space: Space
    _cover: Cover
    _may_be_served: Condition
    """Condition that every served call meets; simpler than `_served`, and others may meet it too."""
    _served: Condition
    _instead: Instead

    @classmethod
    def of(cls, checked: Checked) -> Universe:
        """Made once for all of the policy's tests."""
        program = checked.program
        assert program is not None
        lists = lists_of(checked)
        served = served_of([(entry.condition, entry.value is not None) for entry in lists["provider"]])
        said = dict.fromkeys(entry.condition for entries in lists.values() for entry in entries)
        of_tests: dict[Condition, None] = {}
        for test in checked.tests:
            if isinstance(test.asks, tuple):
                of_tests |= {ask.condition: None for ask in test.asks if isinstance(ask, GivenAny)}
                of_tests |= {leaf: None for one in test.expects for leaf in leaves(one.condition) if _is_fact(leaf)}
        # A rule that only warns is in no list; whether a call meets it is asked all the same.
        rules = [one for one in checked.conditions["rule"].values() if one is not None]
        may_be_served = AnyOf(tuple(entry.condition for entry in lists["provider"] if entry.value is not None))
        world = CallSpace.of(program, checked.conditions)
        space = Space.of([world], [*said, *of_tests, *rules, served])
        cubes: list[Cube] = []
        bits: dict[Condition, int | None] = {}
        for condition in said:
            boxes = space.cubes(condition)
            bits[condition] = None if boxes is None else ((1 << len(boxes)) - 1) << len(cubes)
            cubes += boxes or []
        callers = [one for kind in ("agent", "team") for one in checked.conditions[kind].values() if one is not None]
        return cls(
            program,
            [*callers, *rules],
            {setting: _list(entries, bits) for setting, entries in lists.items()},
            space,
            space.cover(cubes),
            may_be_served,
            served,
            alternatives([*said, *of_tests, *rules]),
        )

    def judge(self, asked: Condition, expected: Condition) -> Judgement:
        """Return the judgement whether every served call that is asked about meets the expectation."""
        question = _Proof(self, asked, expected)
        if isinstance(question.find({}), Nothing):
            return NoCall()
        for facts in question.counterexamples():
            return self._plain(facts, asked, expected)
        return Proven() if question.complete else self._tried(asked, expected)

    def exercises(self, rule: Rule, asked: Condition) -> bool:
        """Return True if a rule decides or says something of a call that is asked about, or if that is unknown."""
        question = _Proof(self, asked, Always())
        verdicts = self._lists["verdict"].entries
        admitted = [_only(number) for number, entry in enumerate(verdicts) if entry.value is not False]
        ways: list[dict[str, range]] = []
        for setting in rule.effects:
            entries = self._lists[setting].entries
            (number,) = (n for n, entry in enumerate(entries) if entry.rule == rule.name)
            one = {setting: _only(number)}
            ways += [one] if setting == "verdict" else [{"verdict": verdict, **one} for verdict in admitted]
        says_more = bool(rule.tags or rule.warnings)
        return any(not isinstance(question.find(way), Nothing) for way in ways) or (
            says_more and not isinstance(question.find({}, (rule.condition,)), Nothing)
        )

    def refutes(self, facts: Facts, asked: Condition, expected: Condition) -> Decided | None:
        """Return the call, decided, if it is asked about and does not meet what is expected."""
        decided = Decided.of(self._program, facts)
        if decided.is_served and decided.asked(asked) and not meets(expected, decided.values):
            return decided
        return None

    def _tried(self, asked: Condition, expected: Condition) -> Unproven | Counterexample:
        """By example, at the edges of all that is asked."""
        tests = [leaf for leaf in leaves(expected) if _is_fact(leaf)]
        programs = self._program, self._program
        tried = 0
        for number, facts in enumerate(candidates([asked, *tests, *self._conditions], programs, by_path=False)):
            if number == DRAWN_MAX:
                break
            decided = Decided.of(self._program, facts)
            if decided.is_served and decided.asked(asked):
                tried += 1
                if not meets(expected, decided.values):
                    return self._plain(facts, asked, expected)
        return Unproven(tried)

    def _plain(self, facts: Facts, asked: Condition, expected: Condition) -> Counterexample:
        """Return the same without what does not matter; with its time, unless any would do."""
        kept = timed(facts)
        known = ({**kept, "model": model} for model in KNOWN_MODELS if "model" in kept)
        kept = next((one for one in known if self.refutes(one, asked, expected) is not None), kept)
        for field in [*(name for name in reversed(list(facts)) if name not in self._instead), *self._instead]:
            less = {name: value for name, value in kept.items() if name != field}
            instead = [{**less, **one} for one in self._instead.get(field, ({},))]
            if field in kept and instead and all(self.refutes(one, asked, expected) is not None for one in instead):
                kept = less
        decided = self.refutes(kept, asked, expected)
        assert decided is not None
        return Counterexample(kept, decided)


def _list(entries: Entries, bits: Mapping[Condition, int | None]) -> _List:
    above: list[int | None] = [0]
    for entry in entries:
        last, more = above[-1], bits[entry.condition]
        above.append(None if last is None or more is None else last | more)
    return _List(entries, above)


def _is_fact(leaf: Leaf) -> bool:
    return not is_outcome(leaf.field) or leaf.field == "model"


@final
@attrs.define(eq=False)
class _Proof:
    """One expectation of the calls that meet a condition."""

    _universe: Universe
    _asked: Condition
    _expected: Condition
    complete: bool = attrs.field(init=False, default=True)
    """True if every way to fail was examined, once `counterexamples` has come to its end."""
    _questions: int = attrs.field(init=False, default=0)

    def counterexamples(self) -> Iterator[Facts]:
        """Yield calls that do not meet the expectation, each decided by the compiled program."""
        fields = dict.fromkeys(leaf.field for leaf in leaves(self._expected) if is_outcome(leaf.field))
        settings = [field for field in fields if field not in OF_VERDICT]
        if fields:
            settings.insert(0, "verdict")
        yield from self._search(settings, {}, {})

    def _search(self, settings: Sequence[str], chosen: Chosen, numbers: Mapping[str, range]) -> Iterator[Facts]:
        rest = reduced(self._expected, chosen)
        if isinstance(rest, Always):
            return
        if not settings or rest == NEVER:
            yield from self._asked_for(numbers, rest)
            return
        if numbers and isinstance(self.find(numbers), Nothing):
            return
        setting, *others = settings
        for entries, value in self._ways(setting):
            yield from self._search(others, {**chosen, setting: value}, {**numbers, setting: entries})

    def _asked_for(self, numbers: Mapping[str, range], rest: Condition) -> Iterator[Facts]:
        universe, fails = self._universe, () if rest == NEVER else (Negation(rest),)
        for more in (fails, (*fails, universe._served)):
            match self.find(numbers, more):
                case Witness() as witness:
                    for facts in _tellings(witness):
                        if universe.refutes(facts, self._asked, self._expected) is not None:
                            yield facts
                            return
                case GaveUp():
                    break
                case Nothing():
                    return
        self.complete = False

    def _ways(self, setting: str) -> list[tuple[range, Value]]:
        """Entries by which a call can be given something, runs that make no difference as one; admitted calls first."""
        tests = [leaf for leaf in leaves(self._expected) if leaf.field == setting]
        found: list[tuple[range, Value]] = []
        last: object = None
        entries = self._universe._lists[setting].entries
        for number, entry in enumerate(entries):
            value = entry.value
            signature: tuple[object, ...] = tuple(_truth(test, {"verdict": True, setting: value}) for test in tests)
            if setting == "verdict":
                signature = (value,)
            if found and signature == last:
                found[-1] = range(found[-1][0].start, number + 1), found[-1][1]
            else:
                found.append((_only(number), value))
            last = signature
        return sorted(found, key=lambda way: way[1] is not True) if setting == "verdict" else found

    def find(self, numbers: Mapping[str, range], more: Iterable[Condition] = ()) -> Witness | Nothing | GaveUp:
        """Return a call that is asked about, is decided by these entries, and meets more conditions."""
        universe = self._universe
        self._questions += 1
        if self._questions > QUESTIONS_MAX:
            return GaveUp()
        all_of = [Of(self._asked), Of(universe._may_be_served), *map(Of, more)]
        none_of: list[Of] = []
        among = 0
        for setting, entries in numbers.items():
            of = universe._lists[setting]
            above = of.above[entries.start]
            if above is None:
                return GaveUp()
            among |= above
            none_of += [Of(entry.condition) for entry in of.entries[: entries.start]]
            these = tuple(of.entries[number].condition for number in entries)
            all_of.append(Of(these[0] if len(these) == 1 else AnyOf(these)))
        starts = universe._space.start(all_of)
        if starts is None:
            return GaveUp()
        return universe._space.outside(universe._cover, starts, among, all_of, none_of)


def _only(number: int) -> range:
    return range(number, number + 1)


def _tellings(witness: Witness) -> Iterator[Facts]:
    """Yield a call that was found, in the words of a `given`: without its dialect, and in each."""
    for facts in readings(witness, by_path=False):
        yield {name: value for name, value in facts.items() if name != "api"}
        yield facts


def reduced(condition: Condition, chosen: Chosen) -> Condition:
    """Return the rest of an expectation once the decision is known; `Always`, or `NEVER`, if nothing is left."""
    match condition:
        case Always():
            return condition
        case AllOf(items=items):
            parts = [reduced(item, chosen) for item in items]
            if NEVER in parts:
                return NEVER
            left = tuple(part for part in parts if not isinstance(part, Always))
            return AllOf(left) if left else Always()
        case AnyOf(items=items):
            parts = [reduced(item, chosen) for item in items]
            if any(isinstance(part, Always) for part in parts):
                return Always()
            return AnyOf(tuple(part for part in parts if part != NEVER))
        case Negation(item=item):
            inner = reduced(item, chosen)
            return NEVER if isinstance(inner, Always) else Always() if inner == NEVER else Negation(inner)
        case _:
            truth = _truth(condition, chosen)
            return condition if truth is None else Always() if truth else NEVER


def _truth(test: Leaf, chosen: Chosen) -> bool | None:
    """Return the truth of a test for a call with this decision; None: it depends on the call, or is unknown."""
    field = test.field
    if not is_outcome(field):
        return None
    admitted = chosen.get("verdict")
    if field in OF_VERDICT:
        return None if admitted is None else admitted == OF_VERDICT[field]
    if admitted is False and not field.startswith("tag."):
        return field in OF_A_CALL_THAT_GOES and is_met_by_nothing(test)
    if admitted is None or field not in chosen:
        return None
    value = chosen[field]
    if value is None:
        return is_met_by_nothing(test)
    return None if value == AS_ASKED else holds(test, {field: value})  # type: ignore[dict-item]  # AsAsked is one value
