"""Calls at which two policies may part: at the edges of what either of them asks.

Every condition is taken apart into its cases, and for each case a call is made that meets it, with every agent and
every dialect. That finds what usual policies change, with examples that a reader knows. It is no proof that nothing
else does (`comparison/call_differences.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, Final, TypeAlias, assert_never, final

import attrs

from hivemind_trio.dialects import DIALECTS, KNOWN_PATHS
from hivemind_trio.model import Api
from hivemind_trio.model.addresses import ADDRESS_MOST
from hivemind_trio.model.dates import MINUTES, date_on, days, is_date, later, weekday_of
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy.language.clock_edges import in_minutes
from hivemind_trio.policy.language.condition_eval import holds
from hivemind_trio.policy.language.condition_typing import (
    PLAN_SHARES,
    AllOf,
    Always,
    AnyOf,
    Condition,
    Flag,
    Like,
    Member,
    Negation,
    Relation,
    is_routed_as,
)
from hivemind_trio.policy.program.call_facts import NO_API, Facts
from hivemind_trio.policy.program.program import Program

from .satisfiability import Witness

NOON: Final = 12 * 60

CALLS_MAX: Final = 3_000
"""Asked of both policies at most."""
CONDITIONS_MAX: Final = 48
PAIRS_MAX: Final = 400
"""Largest number of pairs of cases tried together."""
CASES_MAX: Final = 24
"""Largest number of cases of one condition."""
COMBINATIONS_MAX: Final = 400
"""Tried of the numbers that depend on each other, for one case."""

KNOWN_MODELS: Final = (
    "claude-opus-4-1",
    "claude-sonnet-4-5",
    "claude-haiku-4-5",
    "gpt-5",
    "gpt-4.1",
    "gpt-4.1-mini",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
)
"""Names that readers know, before those made up from a glob."""

Test: TypeAlias = Flag | Relation | Member | Like
Case: TypeAlias = tuple[tuple[Test, bool], ...]
"""Tests, and whether each is to hold."""

KNOWN_HEADERS: Final[Mapping[Api, tuple[str, str]]] = {
    api: header for api, dialect in DIALECTS.items() for header in list(dialect.telling_headers.items())[:1]
}
"""Headers that say the dialect of a path that several APIs have."""

_DERIVED: Final = ("agent", "team", "provider")
"""Found by trying every agent, model and dialect."""
_JOINT: Final = ("tokens.in", "tokens.max-out", "tokens.total", "cost", "model")
_LEAST: Final[Mapping[str, int]] = {"attempt": 1, "weekday": 1}
_MOST: Final[Mapping[str, int]] = {
    "time": MINUTES - 1,
    "weekday": 7,
    "client.address": ADDRESS_MOST,
    **dict.fromkeys(PLAN_SHARES, WHOLE),
}
_FLAGS: Final = ("stream", "tools", "images", "plan.overage")


def candidates(conditions: Iterable[Condition], programs: tuple[Program, Program], *, by_path: bool) -> Iterator[Facts]:
    """Yield calls to ask both policies about, the simplest first.

    Args:
        conditions: At whose edges they are; only so many of the first ones.
        by_path: It is known which dialects a path may belong to.
    """
    conditions = list(islice(dict.fromkeys(conditions), CONDITIONS_MAX))
    search = _CandidateSearch.of(conditions, programs, by_path=by_path)
    return islice(_distinct(search.calls(conditions)), CALLS_MAX)


def _distinct(found: Iterable[Facts]) -> Iterator[Facts]:
    seen = set()
    for facts in found:
        key = tuple(sorted(facts.items()))
        if key not in seen:
            seen.add(key)
            yield facts


@final
@attrs.frozen
class _CandidateSearch:
    """Search for candidates of calls."""

    programs: tuple[Program, Program]
    pools: Mapping[str, Sequence[str | int | bool]]
    """Field -> values on both sides of every edge."""
    who: Sequence[Facts]
    """Every agent, by its token and by a mere claim, and nobody."""
    apis: Sequence[Facts]

    @classmethod
    def of(
        cls, conditions: Iterable[Condition], programs: tuple[Program, Program], *, by_path: bool
    ) -> _CandidateSearch:
        pools: dict[str, dict[str | int | bool, None]] = {"model": dict.fromkeys(("", *_models(programs)))}
        for test in (test for condition in conditions for test in _tests(condition)):
            if not _is_derived(test.field):
                pools.setdefault(test.field, {}).update(dict.fromkeys(_edges(test)))
        agents = dict.fromkeys(agent for program in programs for agent in program.agents)
        guarded = {name for program in programs for name, agent in program.agents.items() if agent.tokens}
        who: list[Facts] = [{}, *({"token" if name in guarded else "claim": name} for name in agents)]
        who += [{"claim": name} for name in agents if name in guarded]
        apis = dict.fromkeys(provider.api for program in programs for provider in program.providers.values())
        spoken: list[Facts] = [{"api": str(api)} for api in apis]
        if by_path and len(apis) > 1:
            spoken += [{"path": path} for path in KNOWN_PATHS]
        return cls(programs, {field: tuple(pool) for field, pool in pools.items()}, who, spoken)

    def calls(self, conditions: Sequence[Condition]) -> Iterator[Facts]:
        """With nothing special; then a case of each condition; then of each two."""
        yield from self._everybody({})
        cases = [
            case
            for condition in dict.fromkeys(conditions)
            for wanted in (True, False)
            for case in islice(_cases(condition, wanted), CASES_MAX)
        ]
        for field in ("model", *_FLAGS):
            for value in self.pools.get(field, ()):
                yield from self._everybody({field: value})
        solved = []
        for case in dict.fromkeys(cases):
            facts = self.solve(case)
            if facts is not None:
                solved.append(case)
                yield from self._everybody(facts)
        for one, other in islice(product(solved, solved), PAIRS_MAX):
            if one is not other:
                facts = self.solve((*one, *other))
                if facts is not None:
                    yield from self._everybody(facts)

    def _everybody(self, facts: Facts) -> Iterator[Facts]:
        for who, api in product(self.who, self.apis):
            yield {"time": NOON, **who, **api, **facts}

    def solve(self, case: Case) -> Facts | None:
        """Return a call for which every test comes out as it should; None: none was found."""
        asked: dict[str, list[tuple[Test, bool]]] = {}
        for test, wanted in case:
            if not _is_derived(test.field):
                asked.setdefault(test.field, []).append((test, wanted))
        facts: dict[str, str | int | bool] = {}
        joint = [field for field in _JOINT if field in asked]
        if "tokens.total" in joint or "cost" in joint:
            together = self._together(asked)
            if together is None:
                return None
            facts.update(together)
        else:
            joint = []
        if "date" in asked:
            date = self._date(asked.pop("date"), asked.pop("weekday", ()))
            if date is None:
                return None
            facts["date"] = date
        for field, tests in asked.items():
            if field in joint:
                continue
            value = self._value(field, tests)
            if value is None:
                return None
            if field in ("time", "weekday") or (value not in ("", False) and value != _LEAST.get(field, 0)):
                facts[field] = value
        return facts

    def _value(self, field: str, tests: Sequence[tuple[Test, bool]]) -> str | int | bool | None:
        pool: Iterable[str | int | bool] = self.pools[field]
        if field in _FLAGS:
            pool = (False, True)
        if field.startswith("header."):
            field = field.lower()
        fits = (value for value in pool if all(holds(test, {test.field: value}) is wanted for test, wanted in tests))
        return next(fits, None)

    def _date(
        self, tests: Sequence[tuple[Test, bool]], of_weekday: Sequence[tuple[Test, bool]]
    ) -> str | int | bool | None:
        """Return a day with the date and the weekday that are asked for."""
        usual = map(date_on, range(1, 8))
        for date in islice((*self.pools.get("date", ()), *usual), COMBINATIONS_MAX):
            if not is_date(str(date)):
                continue
            values = {"date": date, "weekday": weekday_of(str(date))}
            if all(holds(test, values) is wanted for test, wanted in (*tests, *of_weekday)):
                return date
        return None

    def _together(self, asked: Mapping[str, Sequence[tuple[Test, bool]]]) -> Facts | None:
        """Model and tokens, whose sum and whose cost are asked for."""
        tests = [test for field in _JOINT for test in asked.get(field, ())]
        totals = self.pools.get("tokens.total", ())
        counts = dict.fromkeys((0, *self.pools.get("tokens.in", ()), *totals))
        outs = dict.fromkeys((0, *self.pools.get("tokens.max-out", ()), *totals))
        costs = self.pools.get("cost", ())
        tried = 0
        for model in self.pools["model"]:
            price = next((price for one in self.programs if (price := one.price(str(model), None)) is not None), None)
            bought = (
                [] if price is None or not price.input else [-(-int(cost) * 10**6 // price.input) for cost in costs]
            )
            for tokens_in, out in product((*counts, *bought), outs):
                tried += 1
                if tried > COMBINATIONS_MAX:
                    return None
                cost = price.cost_microusd(int(tokens_in), int(out)) if price is not None else 0
                values = {
                    "model": model,
                    "tokens.in": tokens_in,
                    "tokens.max-out": out,
                    "tokens.total": int(tokens_in) + int(out),
                    "cost": cost,
                }
                if all(holds(test, values) is wanted for test, wanted in tests):
                    return {field: values[field] for field in ("model", "tokens.in", "tokens.max-out") if values[field]}
        return None


# ---- conditions ----


def _cases(condition: Condition, wanted: bool) -> Iterator[Case]:
    """Ways in which a condition holds, or does not."""
    match condition:
        case Always():
            if wanted:
                yield ()
        case Negation(item=item):
            yield from _cases(item, not wanted)
        case AllOf(items=items) | AnyOf(items=items):
            if isinstance(condition, AllOf) is wanted:
                for parts in product(*(list(islice(_cases(item, wanted), CASES_MAX)) for item in items[:CASES_MAX])):
                    yield tuple(test for part in parts for test in part)
            else:
                for item in items:
                    yield from _cases(item, wanted)
        case Flag() | Relation() | Member() | Like():
            yield ((in_minutes(condition), wanted),)
        case _:
            assert_never(condition)


def _is_derived(field: str) -> bool:
    return field in _DERIVED or is_routed_as(field)


def _tests(condition: Condition) -> Iterator[Test]:
    match condition:
        case Always():
            return
        case Negation(item=item):
            yield from _tests(item)
        case AllOf(items=items) | AnyOf(items=items):
            for item in items:
                yield from _tests(item)
        case Flag() | Relation() | Member() | Like():
            yield in_minutes(condition)
        case _:
            assert_never(condition)


def _edges(test: Test) -> Iterator[str | int | bool]:
    """Values on both sides of where the answer changes."""
    match test:
        case Flag():
            yield from (True, False)
        case Relation(field="date") | Member(field="date") | Like(field="date"):
            first = next(filter(lambda date: holds(test, {"date": date}), days()), None)
            yield from () if first is None else (first, later(first, 1), later(first, -1))
        case Relation(field=field, value=value):
            yield from _beside(field, value)
        case Member(field=field, values=values, ranges=ranges):
            for value in (*values, *(bound for span in ranges for bound in span)):
                yield from _beside(field, value)
        case Like(globs=globs):
            for glob in globs:
                yield from samples(glob)
            yield from ("", "other")
        case _:
            assert_never(test)


def _beside(field: str, value: str | float) -> Iterator[str | int]:
    if isinstance(value, str):
        yield from (value, "", "other")
        return
    numbers = [int(value), int(value) - 1, int(value) + 1]
    if field == "time":
        numbers = [*(number // 60 * 60 for number in numbers), *numbers]  # whole hours are easier to read
    for number in numbers:
        if _LEAST.get(field, 0) <= number <= _MOST.get(field, number):
            yield number


def samples(glob: str) -> Iterator[str]:
    """Texts that it matches, well-known ones first."""
    for model in KNOWN_MODELS:
        if holds(Like("model", (glob,)), {"model": model}):
            yield model
    yield glob.replace("*", "").replace("?", "x")
    yield glob.replace("*", "x").replace("?", "x")


def _models(programs: Iterable[Program]) -> Iterator[str]:
    for program in programs:
        for provider in program.providers.values():
            for glob in (*provider.serves, *(group.glob for group in provider.groups if group.glob is not None)):
                yield from samples(glob)
        for price in program.models:
            yield from islice(samples(price.glob), 1)


_FIELDS: Final = {
    "tokens_in": "tokens.in",
    "tokens_max_out": "tokens.max-out",
    "client_address": "client.address",
    "plan_session": "plan.session",
    "plan_week": "plan.week",
    "plan_month": "plan.month",
    "plan_overage": "plan.overage",
    "session_context": "session.context",
    "session_turns": "session.turns",
    "session_cost": "session.cost",
    "session_age": "session.age",
    "token_agent": "token",
    "claimed": "claim",
}


def readings(witness: Witness, *, by_path: bool) -> Iterator[Facts]:
    """Yield a call that was found, in the words of `explain`: as it is, in each dialect, and on a path of several."""
    facts: dict[str, Any] = {}
    for name, value in witness.facts.items():
        if name in ("headers", "meta"):
            facts |= {f"{name.removesuffix('s')}.{key}": text for key, text in value.items()}
        elif name == "minute":
            facts["time"] = int(witness.facts["hour"]) * 60 + int(value)
        elif name not in ("apis", "hour") and (name != "weekday" or "date" not in witness.facts):
            facts[_FIELDS.get(name, name)] = value
    apis: tuple[Api, ...] = witness.facts.get("apis", ())
    if by_path and "path" in facts:
        yield facts
        for api in apis:
            if api in KNOWN_HEADERS:
                name, value = KNOWN_HEADERS[api]
                yield {f"header.{name}": value, **facts}
        # The example of a set of paths may be one of no dialect, where others of the set are.
        for path in (*(DIALECTS[api].usual_path for api in apis), f"/v1{facts['path']}"):
            yield {**facts, "path": path}
    if "apis" in witness.facts and not apis:
        yield {"api": NO_API, **facts}
    for api in apis:
        yield {"api": str(api), **facts}
    if by_path and len(apis) > 1 and "path" not in facts:
        for path in KNOWN_PATHS:
            yield {"path": path, **facts}
    if "apis" not in witness.facts:
        for api in dict.fromkeys(one.api for world in witness._worlds for one in world.program.providers.values()):
            yield {"api": str(api), **facts}
