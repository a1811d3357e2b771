"""Questions about calls that can be answered exactly: is there one that meets these conditions and none of those?

    space = Space.of([world], conditions)
    match space.find([condition], none_of=[other]):
        case Witness() as call: ...     # such a call; `call.request()` is one, ready to be decided
        case Nothing(): ...             # there is none, proven
        case GaveUp(): ...              # it could not be found out within the bounds

`Space` divides what calls can be by all conditions that it will be asked about, so those are named when it is made
(`partition.py`), and a question is one to the covers of `box_cover.py`. A condition may belong to one of several
policies; `Of(condition, k)` reads the agent, the team, the provider and the cost as policy `k` gives them, so that two
policies can be compared over one and the same call. What is found is held against the plain interpreter before it is
given away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, assert_never, final

import attrs

from hivemind_trio.dialects import SHARED_PATHS
from hivemind_trio.model import Api, Request
from hivemind_trio.model.dates import weekday_of
from hivemind_trio.policy.compile.codegen import Router
from hivemind_trio.policy.language.clock_edges import in_minutes
from hivemind_trio.policy.language.condition_eval import field_values, holds
from hivemind_trio.policy.language.condition_typing import (
    AllOf,
    Always,
    AnyOf,
    Condition,
    Field,
    Flag,
    Kind,
    Like,
    Member,
    Negation,
    Relation,
    as_model,
    is_routed_as,
    request_fields,
)
from hivemind_trio.policy.program.call_facts import OF_CALLER, day_of, time_of

from .box_cover import Cover, Covered, Cube, Entangled, Open
from .call_space import CallSpace, Impossible, billing, callers
from .partition import DERIVED, Classes, Days, Flags, Key, Names, Numbers, Test, Texts, Variable, single

CUBES_MAX: Final = 256
"""Boxes that one condition may fall into."""
ALWAYS_CELLS_MAX: Final = 2_000_000
"""Cells looked at to find conditions that are always met and whose opposite falls into too many boxes.

Over a whole policy: some seconds.
"""


@final
@attrs.frozen
class Of:
    """A condition of one of the policies."""

    condition: Condition
    world: int = 0


Asked: TypeAlias = Condition | Of


@final
@attrs.frozen
class Nothing:
    """There is no such call."""

    cubes: int
    """A set of the cubes of `Space.cover` that suffices to show it."""


@final
@attrs.frozen
class GaveUp:
    """Unknown: the search gave up."""


@final
@attrs.frozen
class Witness:
    """A call that is as was asked for."""

    facts: Mapping[str, Any]
    """Facts of the model, by the names of `Request`'s fields; the rest is arbitrary and has the language's defaults."""
    _worlds: Sequence[CallSpace] = attrs.field(repr=False)
    _routed_as: Sequence[str] = attrs.field(default=(), repr=False)
    """Fields of `routed_as` that are asked for."""

    def request(self, world: int = 0) -> Request:
        """Return the call as a request to one of the policies."""
        facts = {**self.facts, **day_of(self.facts)}  # every real call has a day
        here = self._worlds[world]
        if not here.is_proven(facts.get("token_agent", "")):
            facts.pop("token_agent", None)
        if "apis" not in facts:
            facts["apis"] = tuple(dict.fromkeys(one.api for one in here.program.providers.values()))
        request = Request(**facts)
        cost = here.program.estimated_cost(request.apis, request.model, request.tokens_in, request.tokens_max_out)
        return attrs.evolve(request, cost_microusd=cost)

    def values(self, world: int = 0) -> dict[str, str | int | bool]:
        """Return the fields of the call in one of the policies."""
        request, program = self.request(world), self._worlds[world].program
        treatment = program.decide(request)
        router = Router.of(program.providers)
        routed = router.route(request.apis, request.model)
        values = field_values(request, agent=treatment.agent, team=treatment.team, provider=routed)
        return values | {field: router.route(request.apis, as_model(field)) or "" for field in self._routed_as}


Answer: TypeAlias = Witness | Nothing | GaveUp


@final
@attrs.define(eq=False)
class Space:
    """All calls, divided."""

    worlds: Sequence[CallSpace]
    variables: Sequence[Variable]
    _of_key: Mapping[Key, int]
    _given: Sequence[Cube] = ()
    """Cubes that no call is in."""
    _masks: dict[tuple[Test, int], tuple[int, int]] = attrs.field(init=False, factory=dict)
    _no_call: Cover | None = attrs.field(init=False, default=None)
    _always_cells: int = attrs.field(init=False, default=0)
    """Cells of all covers that were made to learn whether a condition is always met."""

    @classmethod
    def of(
        cls, worlds: Sequence[CallSpace], asked: Iterable[Asked], *, several: Sequence[tuple[Api, ...]] | None = None
    ) -> Space:
        """Return a space for these conditions and their combinations by `and`, `or` and `not`.

        Args:
            several: The sets of several dialects that one call may have; None: those of the paths that are shared, and
                that of a call that does not say.
        """
        if several is None:
            spoken = [tuple(dict.fromkeys(one.api for one in each.program.providers.values())) for each in worlds]
            several = [*spoken, *SHARED_PATHS]
        return _Maker(worlds, several).make([_of(one) for one in asked])

    def cubes(self, asked: Asked, *, negated: bool = False) -> list[Cube] | None:
        """Boxes that together are what meets a condition, or does not; None: there are too many."""
        one = _of(asked)
        return self._cubes(one.condition, one.world, negated)

    def cover(self, cubes: Sequence[Cube]) -> Cover:
        """Cubes to be asked about; those behind the last are what no call is like."""
        return Cover([variable.size for variable in self.variables], [*cubes, *self._given])

    def impossible(self, cover: Cover) -> int:
        """Return the cubes of a cover that are what no call is like, as a set."""
        return ((1 << len(self._given)) - 1) << (len(cover.cubes) - len(self._given))

    def is_met(self, boxes: Sequence[Cube]) -> bool:
        """Return True if some call is in one of the boxes, or if that is unknown."""
        if not self._given:
            return bool(boxes)
        if self._no_call is None:
            self._no_call = self.cover([])
        return any(self._is_open(self._no_call, box) for box in boxes)

    def is_met_always(self, asked: Asked) -> bool:
        """Return True if every call meets a condition; False if that is unknown."""
        rest = self.cubes(asked, negated=True)
        if rest is not None:
            return not self.is_met(rest)
        boxes = self.cubes(asked)
        if boxes is None:
            return False
        self._always_cells += sum(variable.size for variable in self.variables) + len(boxes)
        return self._always_cells <= ALWAYS_CELLS_MAX and not self._is_open(self.cover(boxes), {})

    def is_covered(self, starts: Sequence[Cube], cover: Cover, among: int) -> bool:
        """Return True if every call of the starts is in one of some cubes; False if that is unknown.

        Args:
            cover: As `Space.cover` made it.
            among: Cubes of it; those that no call is like are taken in any case.
        """
        among |= self.impossible(cover)
        try:
            return all(isinstance(cover.search(start, among), Covered) for start in starts)
        except Entangled:
            return False

    @staticmethod
    def _is_open(cover: Cover, start: Cube) -> bool:
        try:
            return isinstance(cover.search(start, (1 << len(cover.cubes)) - 1), Open)
        except Entangled:
            return True

    def find(self, all_of: Iterable[Asked], none_of: Iterable[Asked] = ()) -> Answer:
        """Return a call that meets all of some conditions and none of others."""
        wanted, unwanted = [_of(one) for one in all_of], [_of(one) for one in none_of]
        starts = self.start(wanted)
        if starts is None:
            return GaveUp()
        covering: list[Cube] = []
        for one in unwanted:
            boxes = self.cubes(one)
            if boxes is None:
                return GaveUp()
            covering += boxes
        cover = self.cover(covering)
        return self.outside(cover, starts, (1 << len(covering)) - 1, wanted, unwanted)

    def start(self, wanted: Iterable[Asked]) -> list[Cube] | None:
        """Return the boxes of what meets all of some conditions; None: there are too many."""
        starts: list[Cube] = [{}]
        for one in wanted:
            boxes = self.cubes(one)
            if boxes is None:
                return None
            starts = _crossed(starts, boxes)
            if len(starts) > CUBES_MAX:
                return None
        return starts

    def outside(
        self, cover: Cover, starts: Sequence[Cube], among: int, wanted: Sequence[Of], unwanted: Sequence[Of]
    ) -> Answer:
        """Return a call in one of the starts and in none of some cubes.

        Args:
            cover: As `Space.cover` made it.
            among: Cubes of it; those that no call is like are taken in any case.
            wanted: What the starts are, to look at what is found once more.
            unwanted: What the cubes are.
        """
        among |= self.impossible(cover)
        used, doubtful = 0, False
        for start in starts:
            try:
                found = cover.search(start, among)
            except Entangled:
                doubtful = True
                continue
            if isinstance(found, Covered):
                used |= found.by
                continue
            witness = self._witness(start, found)
            if witness is not None and self._confirmed(witness, wanted, unwanted):
                return witness
            doubtful = True
        return GaveUp() if doubtful else Nothing(used)

    def find_open(self, starts: Sequence[Cube], cubes: Sequence[Cube]) -> Witness | None:
        """Return a call in one of the starts and in none of the cubes; None: there is none, or it is unknown."""
        cover = self.cover(cubes)
        for start in starts:
            try:
                found = cover.search(start, (1 << len(cover.cubes)) - 1)
            except Entangled:
                continue
            if isinstance(found, Open) and (witness := self._witness(start, found)) is not None:
                return witness
        return None

    def of_fields(self, fields: Iterable[str]) -> frozenset[int]:
        """Return the variables that some fields belong to."""
        names = frozenset(fields)
        return frozenset(number for (name, _), number in self._of_key.items() if name in names)

    def _witness(self, start: Cube, found: Open) -> Witness | None:
        facts: dict[str, Any] = {}
        headers: dict[str, str] = {}
        meta: dict[str, str] = {}
        for number, variable in enumerate(self.variables):
            if number not in start and number not in found.cells:
                continue
            mask = start.get(number, -1)
            made = variable.facts[found.cells.get(number, (mask & -mask).bit_length() - 1)]
            if made is None:
                return None
            for name, value in made.items():
                family, _, rest = name.partition(".")
                if family == "header":
                    headers[rest] = value
                elif family == "meta":
                    meta[rest] = value
                else:
                    facts[name] = value
        if headers:
            facts["headers"] = {name: value for name, value in headers.items() if value}
        if meta:
            facts["meta"] = {name: value for name, value in meta.items() if value}
        return Witness(facts, self.worlds, [name for name, _ in self._of_key if is_routed_as(name)])

    def _confirmed(self, witness: Witness, wanted: Sequence[Of], unwanted: Sequence[Of]) -> bool:
        values = [witness.values(world) for world in range(len(self.worlds))]
        return all(holds(one.condition, values[one.world]) for one in wanted) and not any(
            holds(one.condition, values[one.world]) for one in unwanted
        )

    # ---- from conditions to boxes ----

    def _cubes(self, condition: Condition, world: int, negated: bool) -> list[Cube] | None:
        match condition:
            case Always():
                return [] if negated else [{}]
            case Negation(item=item):
                return self._cubes(item, world, not negated)
            case AllOf(items=items) | AnyOf(items=items):
                parts = [self._cubes(item, world, negated) for item in items]
                boxes = [part for part in parts if part is not None]
                if len(boxes) < len(parts):
                    return None
                return _all(boxes) if isinstance(condition, AllOf) is not negated else self._any(boxes)
            case _:
                number, mask = self._mask(in_minutes(condition), world)
                everything = (1 << self.variables[number].size) - 1 if number >= 0 else 0
                mask = everything ^ mask if negated else mask
                if number < 0:
                    return None
                return [] if not mask else [{}] if mask == everything else [{number: mask}]

    def _mask(self, test: Test, world: int) -> tuple[int, int]:
        """Return the variable of a test, and the cells in which it holds; -1: its field could not be divided."""
        key = key_of(test.field, world)
        found = self._masks.get((test, key[1]))
        if found is None:
            number = self._of_key.get(key, -1)
            found = number, self.variables[number].mask(key, test) if number >= 0 else 0
            self._masks[test, key[1]] = found
        return found

    def _any(self, parts: Sequence[Sequence[Cube]]) -> list[Cube] | None:
        """Boxes that restrict one and the same variable are one box."""
        found: list[Cube] = []
        narrow: dict[int, int] = {}
        for part in parts:
            for cube in part:
                if not cube:
                    return [{}]
                if len(cube) == 1:
                    ((variable, mask),) = cube.items()
                    narrow[variable] = narrow.get(variable, 0) | mask
                elif cube not in found:
                    found.append(cube)
        if any(mask == (1 << self.variables[variable].size) - 1 for variable, mask in narrow.items()):
            return [{}]
        # The wide ones first: a call that is found there is plainer.
        found = [*({variable: mask} for variable, mask in narrow.items()), *found]
        return found if len(found) <= CUBES_MAX else None


def key_of(field: str, world: int) -> Key:
    """Return the policy whose value a field is."""
    return field, world if field in DERIVED or is_routed_as(field) else 0


def _of(asked: Asked) -> Of:
    return asked if isinstance(asked, Of) else Of(asked)


def _all(parts: Sequence[Sequence[Cube]]) -> list[Cube] | None:
    found: list[Cube] = [{}]
    for part in parts:
        found = _crossed(found, part)
        if len(found) > CUBES_MAX:
            return None
    return found


def _crossed(some: Sequence[Cube], others: Sequence[Cube]) -> list[Cube]:
    return [both for one in some for other in others if (both := common(one, other)) is not None]


def common(one: Cube, other: Cube) -> Cube | None:
    """Return the intersection; None: it is empty."""
    if not one or not other:
        return other or one
    both = dict(one)
    for variable, mask in other.items():
        both[variable] = both.get(variable, -1) & mask
        if not both[variable]:
            return None
    return both


# ---- the making of a space ----

TOKENS: Final = ("tokens.in", "tokens.max-out", "tokens.total")

FACTS: Final = {
    "tokens.in": "tokens_in",
    "tokens.max-out": "tokens_max_out",
    "tokens.total": "tokens_in",
    **OF_CALLER,
}
"""Field -> what makes a call have it, where nobody asks for the others; the rest are called alike."""


@final
class _Maker:
    """Builder of the variables and their partition."""

    def __init__(self, worlds: Sequence[CallSpace], several: Sequence[tuple[Api, ...]]) -> None:
        self.worlds = worlds
        self.several = several
        self.tests: dict[Key, dict[Test, None]] = {}
        self.fields = [_fields(world) for world in worlds]
        self.variables: list[Variable] = []
        self.of_key: dict[Key, int] = {}

    def make(self, asked: Sequence[Of]) -> Space:
        for one in asked:
            self._note(one.condition, one.world)
        impossible: list[Impossible] = []
        if any(name in ("agent", "team") for name, _ in self.tests):
            variable, impossible = callers(self.worlds)
            self._add(variable)
            for exclusion in impossible:
                self._note(exclusion.condition, exclusion.world)
        self._add_days()
        self._add_linked()
        for key in self.tests:
            if key not in self.of_key:
                self._add_alone(key)
        space = Space(self.worlds, self.variables, self.of_key)
        given: list[Cube] = []
        for exclusion in impossible:
            boxes = space.cubes(Of(exclusion.condition, exclusion.world), negated=not exclusion.met)
            # Without these more calls seem possible than are: nothing untrue is proven by that.
            given += _crossed([{0: exclusion.cells}], boxes or [])
        return attrs.evolve(space, given=given)

    def _note(self, condition: Condition, world: int) -> None:
        match condition:
            case AllOf(items=items) | AnyOf(items=items):
                for item in items:
                    self._note(item, world)
            case Negation(item=item):
                self._note(item, world)
            case Always():
                pass
            case Flag() | Relation() | Member() | Like():
                test = in_minutes(condition)
                self.tests.setdefault(key_of(test.field, world), {})[test] = None
            case _:
                assert_never(condition)

    def _add_days(self) -> None:
        """Add date and weekday as one variable, if a condition reads the date."""
        keys = [("date", 0), ("weekday", 0)]
        if keys[0] not in self.tests:
            return
        days = Days.of(test for key in keys for test in self.tests.get(key, ()))
        if days is not None:
            facts = [{"date": date, "weekday": weekday_of(date)} for date in days.groups]
            self._add(Variable(len(days), facts, dict.fromkeys(keys, days), None))
            return
        for key in keys:
            # Taken for independent, so it is not certain that what is found is possible.
            if key in self.tests and (classes := self._classes(key)) is not None:
                self._add(single(key, classes, [None] * len(classes)))

    def _add_linked(self) -> None:
        """Add fields that depend on each other as one variable."""
        asked = {name for name, _ in self.tests}
        tokens = [name for name in TOKENS if name in asked]
        every = range(len(self.worlds))
        places = [key for key in self.tests if is_routed_as(key[0])]
        if "cost" in asked:
            globs = [price.glob for world in self.worlds for price in world.program.models]
            names = [("model", 0), *((name, 0) for name in tokens), *(("cost", k) for k in every)]
            if "provider" in asked or places or any(world.program.prices_by_provider for world in self.worlds):
                names += [("provider", k) for k in every] + places
                globs += self._served()
            self._add_combined(names, globs)
            return
        if "provider" in asked or places:
            self._add_combined([("model", 0), *(("provider", k) for k in every), *places], self._served())
        if "tokens.total" in tokens and len(tokens) > 1:
            self._add_combined([(name, 0) for name in tokens], ())

    def _served(self) -> list[str]:
        return [glob for world in self.worlds for one in world.program.providers.values() for glob in one.serves]

    def _add_combined(self, keys: Sequence[Key], globs: Sequence[str]) -> None:
        classes: dict[Key, Classes] = {}
        for key in keys:
            one = self._classes(key, globs=globs if key == ("model", 0) else ())
            if one is not None:
                classes[key] = one
        variable = billing(self.worlds, classes, self.several) if len(classes) == len(keys) else None
        if variable is not None:
            self._add(variable)
            return
        for key, one in classes.items():
            # Taken for independent, so it is not certain that what is found is possible.
            self._add(single(key, one, [None] * len(one)))

    def _classes(self, key: Key, *, globs: Iterable[str] = ()) -> Classes | None:
        name, world = key
        field = self.fields[world].get(name) or Field(name, Kind.TEXT)
        tests = self.tests.get(key, {})
        if is_routed_as(name):
            field = self.fields[world]["provider"]
        match field.kind:
            case Kind.TEXT | Kind.DATE:
                return Texts.of(tests, globs=globs)
            case Kind.FLAG:
                return Flags()
            case Kind.ENUM:
                return Names([*field.choices, ""])
            case _:
                return Numbers.of(field, tests)

    def _add_alone(self, key: Key) -> None:
        classes = self._classes(key)
        fact = FACTS.get(key[0], key[0])
        match classes:
            case None:
                return  # questions about it have no answer
            case Numbers(starts=starts) if key[0] == "time":
                self._add(single(key, classes, [time_of({"time": start}) for start in starts]))
            case Texts(examples=examples):
                self._add(single(key, classes, [{fact: example} for example in examples]))
            case Flags():
                self._add(single(key, classes, [{fact: False}, {fact: True}]))
            case Numbers(starts=starts):
                self._add(single(key, classes, [{fact: start} for start in starts]))
            case _:
                raise AssertionError(key)

    def _add(self, variable: Variable) -> None:
        self.of_key.update(dict.fromkeys(variable.classes, len(self.variables)))
        self.variables.append(variable)


def _fields(world: CallSpace) -> Mapping[str, Field]:
    program = world.program
    return request_fields(list(program.agents), list(program.teams), list(program.providers))
