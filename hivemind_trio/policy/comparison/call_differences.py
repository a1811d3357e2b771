"""Differences in decisions: for every way in which a setting could change, a call for which it does, or a proof.

Of each setting both policies are lists of conditions (`decisions.py`), of which the first that holds decides. A call
is decided by entry i of the one and by entry j of the other if it meets both and none above them, which is a question
that has an exact answer (`solver/satisfiability.py`). Most pairs need none: an entry that stands in both lists, and is
not moved past another one, cannot part them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, reduce
from itertools import groupby, product
from operator import or_
from typing import Any, Final, TypeAlias, final

import attrs

from hivemind_trio.dialects import SHARED_PATHS
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.language.condition_typing import Always, AnyOf, Condition, Like, fields_of, is_routed_as
from hivemind_trio.policy.program.call_facts import Facts
from hivemind_trio.policy.solver.boundary_calls import readings
from hivemind_trio.policy.solver.box_cover import Cover, Cube
from hivemind_trio.policy.solver.call_space import CallSpace
from hivemind_trio.policy.solver.partition import DERIVED
from hivemind_trio.policy.solver.satisfiability import GaveUp, Nothing, Of, Space, Witness

from .decisions import NO, NOT_SERVED, DecisionRow, decisions, goes

QUESTIONS_MAX: Final = 2_000
"""Asked in all; beyond it some changes may be missed, which is said."""

ALWAYS_COMPARED: Final = ("agent", "verdict")
"""Settings that refused calls have too; the others matter only to calls that both policies admit."""

ROOTED: Final = Like("path", ("/*", ""))
"""Paths of calls of a known dialect; a client that sends another is not served."""

Triple: TypeAlias = tuple[str, str, str]
"""A setting, before, after."""

_By: TypeAlias = tuple[str, int, int]
"""The entry that decides a setting: the setting, the policy, the number of the entry."""


@final
@attrs.define(eq=False)
class Parting:
    """Looks for calls that two policies without errors treat differently."""

    _old: Checked
    _new: Checked
    by_path: bool = attrs.field(kw_only=True)
    """True if the dialects that a path may belong to are known."""
    complete: bool = attrs.field(default=True, init=False)
    """True if every way was found or excluded, once `calls` has come to its end."""
    _questions: int = attrs.field(default=0, init=False)
    _pairs: dict[str, _Pairs] = attrs.field(init=False)
    _open: dict[str, list[tuple[int, int]]] = attrs.field(init=False)
    """Setting -> the pairs of entries that could decide a call differently."""

    def __attrs_post_init__(self) -> None:
        stable = _stable_fields(self._old, self._new)
        absent = (DecisionRow(Always(), NO),)
        one, other = decisions(self._old), decisions(self._new)
        self._pairs = {
            setting: _Pairs(setting, one.get(setting, absent), other.get(setting, absent), stable)
            for setting in dict.fromkeys([*one, *other])
        }
        self._open = {setting: found for setting, one in self._pairs.items() if (found := list(one.open()))}

    @property
    def may_part(self) -> bool:
        """True if a setting could change for any call."""
        return bool(self._open)

    @property
    def conditions(self) -> Iterator[Condition]:
        """Those by which the policies may part, what only one of them asks before the rest; and who is who."""
        both = [
            (entry.condition, {one.condition for one in others})
            for setting, found in self._open.items()
            for entries, others, numbers in (
                (self._pairs[setting].old, self._pairs[setting].new, {i: None for i, _ in found}),
                (self._pairs[setting].new, self._pairs[setting].old, {j: None for _, j in found}),
            )
            for entry in (entries[number] for number in numbers)
        ]
        yield from (condition for condition, others in both if condition not in others)
        for checked in (self._old, self._new):
            for kind in ("agent", "team"):
                yield from (condition for condition in checked.conditions[kind].values() if condition is not None)
        yield from (condition for condition, _ in both)

    def calls(self, seen: Set[Triple]) -> Iterator[Facts]:
        """Yield calls to be examined; the caller adds what they show to `seen` before it asks for the next."""
        if not self._open:
            return
        search = _PairSearch.of((self._old, self._new), self._pairs, self._open, by_path=self.by_path)
        for setting, found in self._open.items():
            pairs = self._pairs[setting]
            for i, j in found:
                before, after = pairs.old[i].value, pairs.new[j].value
                if (setting, before, after) not in seen:
                    for decided in search.ways(setting, i, j):
                        yield from self._ask(search, setting, decided, (setting, before, after), seen)
                if self._questions > QUESTIONS_MAX:
                    return

    def _ask(
        self, search: _PairSearch, setting: str, decided: Sequence[_By], wanted: Triple, seen: Set[Triple]
    ) -> Iterator[Facts]:
        """Look for a call that is decided so; where that has no certain answer, provider by provider."""
        if wanted in seen:
            return
        served = search.served_for(setting)
        answer = self._answer(search, search.question(decided, served))
        if isinstance(answer, Witness):
            yield from readings(answer, by_path=self.by_path)
        if isinstance(answer, Nothing) or wanted in seen:
            return
        if not served:
            self.complete = False
            return
        for places in search.possible_places:
            answer = self._answer(search, search.question_at(decided, places))
            if isinstance(answer, Witness):
                yield from readings(answer, by_path=self.by_path)
            if wanted in seen:
                return
            # What was found may be impossible after all: a path that no call of this dialect has.
            self.complete = self.complete and isinstance(answer, Nothing)
            if not self.complete:
                return

    def _answer(self, search: _PairSearch, question: _DifferenceQuery) -> Witness | Nothing | GaveUp:
        self._questions += 1
        return search.find(question) if self._questions <= QUESTIONS_MAX else GaveUp()


@final
@attrs.frozen
class _Pairs:
    """One setting in both policies."""

    setting: str
    old: Sequence[DecisionRow]
    new: Sequence[DecisionRow]
    _stable: Set[str]
    """Fields that have the same value for both policies, whatever the call."""

    def open(self) -> Iterator[tuple[int, int]]:
        """Pairs of entries that a call may be decided by, with another value."""
        in_old = self._places(self.old)
        in_new = self._places(self.new)
        heres = [in_old.get(other.condition) for other in self.new]
        for i, one in enumerate(self.old):
            there = in_new.get(one.condition)
            for j, other in enumerate(self.new):
                # A condition that is met is met in both: what decides stands above it, or is it itself.
                if there is not None and there < j:
                    break
                here = heres[j]
                if here is not None and here < i:
                    continue
                if one.value != other.value:
                    yield i, j

    def _places(self, entries: Sequence[DecisionRow]) -> dict[Condition, int]:
        """Return the first position of each condition that means the same to both."""
        places: dict[Condition, int] = {}
        for number, entry in enumerate(entries):
            if all(_own(field) in self._stable for field in fields_of(entry.condition)):
                places.setdefault(entry.condition, number)
        return places


def _own(field: str) -> str:
    """Return the field by which it is known whether it is the same for both; empty: it is in any case."""
    return "provider" if is_routed_as(field) else field if field in DERIVED else ""


def _stable_fields(old: Checked, new: Checked) -> frozenset[str]:
    one, other = old.program, new.program
    assert one is not None
    assert other is not None
    stable = {""}

    def callers(checked: Checked) -> list[Any]:
        assert checked.program is not None
        return [
            (agent.name, bool(agent.tokens), agent.team, checked.conditions["agent"].get(agent.name))
            for agent in checked.program.agents.values()
        ]

    if callers(old) == callers(new) and one.server.identify == other.server.identify:
        stable.add("agent")
        if [*old.conditions["team"].items()] == [*new.conditions["team"].items()]:
            stable.add("team")
    places = [[(it.name, it.api, it.serves) for it in program.providers.values()] for program in (one, other)]
    if places[0] == places[1]:
        stable.add("provider")
    by_provider = one.prices_by_provider or other.prices_by_provider
    if one.models == other.models and (not by_provider or "provider" in stable):
        stable.add("cost")
    return frozenset(stable)


# ---- questions ----


@final
@attrs.frozen(eq=False)
class _Side:
    """One setting's list in one of the policies, as questions are made of it."""

    asked: Sequence[Of]
    above: Sequence[int | None]
    """Number of an entry -> the cubes of all entries above it; None: there are too many."""


@final
@attrs.frozen(eq=False)
class _DifferenceQuery:
    """Is there a call that meets these, and none of those?"""

    all_of: Sequence[Of]
    none_of: Sequence[Of]
    among: int | None
    """The cubes of `none_of`; None: there are too many."""


@final
@attrs.frozen(eq=False, slots=False)
class _PairSearch:
    """The calls of both policies, divided by all that is asked, and the cover that all questions share."""

    _space: Space
    _cover: Cover
    _sides: Mapping[str, tuple[_Side, _Side]]
    _served: Sequence[Of]
    """Conditions that every call meets which some provider serves; others may meet them too."""
    _rooted: Sequence[Of]
    """The condition that such a call meets because its path has a dialect, if paths are asked about."""
    _places: Sequence[tuple[_By, _By]]
    """The pairs of entries by which a call is served before and after."""
    _admitted: Sequence[tuple[int, int]]
    """The pairs of entries of `goes`, a list made of that of verdicts, by which a call goes before and after."""

    @classmethod
    def of(
        cls,
        policies: tuple[Checked, Checked],
        pairs: Mapping[str, _Pairs],
        settings: Iterable[str],
        *,
        by_path: bool,
    ) -> _PairSearch:
        """Return a search for questions about these settings, and about verdict and provider in any case.

        Args:
            by_path: The dialects that a path may belong to are known.
        """
        worlds = []
        for checked in policies:
            assert checked.program is not None
            worlds.append(CallSpace.of(checked.program, checked.conditions))
        asked = {
            setting: tuple(
                [Of(entry.condition, world) for entry in entries]
                for world, entries in enumerate((pairs[setting].old, pairs[setting].new))
            )
            for setting in dict.fromkeys(["verdict", "provider", *settings])
        }
        places = [
            [number for number, one in enumerate(entries) if one.value != NOT_SERVED]
            for entries in (pairs["provider"].old, pairs["provider"].new)
        ]
        served = [
            Of(AnyOf(tuple(asked["provider"][k][number].condition for number in numbers)), k)
            for k, numbers in enumerate(places)
        ]
        conditions = dict.fromkeys(one for lists in asked.values() for side in lists for one in side)
        rooted = [Of(ROOTED)] if by_path and any("path" in fields_of(one.condition) for one in conditions) else []
        # Without paths an example is of one dialect.
        space = Space.of(worlds, [*conditions, *served, *rooted], several=SHARED_PATHS if by_path else ())
        cubes: list[Cube] = []
        bits: dict[Of, int | None] = {}
        for one in conditions:
            boxes = space.cubes(one)
            bits[one] = None if boxes is None else ((1 << len(boxes)) - 1) << len(cubes)
            cubes += boxes or []
        going = [
            _runs(space, entries, asked["verdict"][world], bits)
            for world, entries in enumerate((pairs["verdict"].old, pairs["verdict"].new))
        ]
        asked["goes"] = ([one for one, _ in going[0]], [one for one, _ in going[1]])
        admitted = product(*([number for number, (_, it_goes) in enumerate(runs) if it_goes] for runs in going))
        sides = {setting: (_side(lists[0], bits), _side(lists[1], bits)) for setting, lists in asked.items()}
        by_places = [(("provider", 0, p), ("provider", 1, q)) for p, q in product(*places)]
        return cls(space, space.cover(cubes), sides, served, rooted, by_places, [(v, w) for v, w in admitted])

    @cached_property
    def possible_places(self) -> Sequence[tuple[_By, _By]]:
        """The pairs of entries by which some call is served before and after, as far as that could be found out."""
        return [places for places in self._places if not isinstance(self.find(self.question(places)), Nothing)]

    def ways(self, setting: str, i: int, j: int) -> Iterator[Sequence[_By]]:
        """Yield what else decides a call that these entries decide: how it is admitted, where it has to be."""
        here: tuple[_By, ...] = (setting, 0, i), (setting, 1, j)
        if setting in ALWAYS_COMPARED:
            yield here
            return
        for v, w in self._admitted:
            yield *here, ("goes", 0, v), ("goes", 1, w)

    def served_for(self, setting: str) -> Sequence[Of]:
        """Return what a call meets that is served before and after, as far as the setting is of such calls alone."""
        return [*self._served, *self._rooted] if setting not in (*ALWAYS_COMPARED, "provider") else ()

    def question(self, decided: Sequence[_By], more: Sequence[Of] = ()) -> _DifferenceQuery:
        """Ask for a call that is decided by these entries."""
        all_of: list[Of] = [*more]
        none_of: list[Of] = []
        among: int | None = 0
        for setting, world, number in decided:
            side = self._sides[setting][world]
            all_of.append(side.asked[number])
            none_of += side.asked[:number]
            above = side.above[number]
            among = None if among is None or above is None else among | above
        return _DifferenceQuery(all_of, none_of, among)

    def question_at(self, decided: Sequence[_By], places: tuple[_By, _By]) -> _DifferenceQuery:
        """Ask for a call that is decided by these entries, and served by these."""
        return self.question([*decided, *places], self._rooted)

    def find(self, question: _DifferenceQuery) -> Witness | Nothing | GaveUp:
        starts = self._space.start(question.all_of)
        if starts is None or question.among is None:
            return GaveUp()
        return self._space.outside(self._cover, starts, question.among, question.all_of, question.none_of)


def _runs(
    space: Space, entries: Sequence[DecisionRow], asked: Sequence[Of], bits: dict[Of, int | None]
) -> list[tuple[Of, bool]]:
    """Return a list of verdicts as one of runs that let calls go, or deny them, and note the bits of each run.

    A call that a run decides need not be asked about once for each of its entries.
    """
    found: list[tuple[Of, bool]] = []
    for it_goes, group in groupby(zip(entries, asked, strict=True), lambda pair: goes(pair[0].value)):
        run = [one for _, one in group]
        parts = [bits[one] for one in run]
        known = [part for part in parts if part is not None]
        whole = Of(AnyOf(tuple(one.condition for one in run)), run[0].world)
        if len(run) == 1 or len(known) < len(parts) or space.cubes(whole) is None:
            found += [(one, it_goes) for one in run]
            continue
        bits[whole] = reduce(or_, known)
        found.append((whole, it_goes))
    return found


def _side(asked: Sequence[Of], bits: Mapping[Of, int | None]) -> _Side:
    above: list[int | None] = [0]
    for one in asked:
        last, more = above[-1], bits[one]
        above.append(None if last is None or more is None else last | more)
    return _Side(asked, above)
