"""Explanation of a decision: the rule that decides each setting of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, final

import attrs

from hivemind_trio.model import Api, Decider, Decision, Moment, Request, Verdict
from hivemind_trio.model.addresses import address_number
from hivemind_trio.model.dates import is_date
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.compile.codegen import BUILT_IN, Router
from hivemind_trio.policy.diagnostics.suggest import one_of, suggestion
from hivemind_trio.policy.language.condition_eval import field_values, holds
from hivemind_trio.policy.language.condition_typing import PLAN_SHARES, Field, Kind, request_fields
from hivemind_trio.policy.language.dates import as_date
from hivemind_trio.policy.language.units import (
    QUANTITY,
    UnitError,
    as_clock,
    clock_minutes,
    count,
    duration_ns,
    money_microusd,
    share,
)
from hivemind_trio.policy.program.budgets import Per
from hivemind_trio.policy.program.call_facts import CLOCKS, DAYS, NO_API, OF_CALLER, ApisOf, contradiction, time_of
from hivemind_trio.policy.program.holds import EDGES_MAX, at_moment, seconds_to
from hivemind_trio.policy.program.program import UNKNOWN_AGENT, Program, ProviderSettings

DERIVED: Final = {
    "team": "it follows from the agent, or a team's `when`; give `agent=...`",
    "tokens.total": "give `tokens.in=...` and `tokens.max-out=...`",
    "provider": "the provider follows from the model and the path; give `model=...`",
}
"""Fields that cannot be given, and what to give instead."""

_BESIDE_FIELDS: Final = ("api", "token", "claim", "header.NAME", "meta.NAME")
"""Words that can be given beside the fields of conditions."""


def given_fields(fields: Iterable[str] | None = None) -> list[str]:
    """Return the names by which a call can be described to `explain`.

    Args:
        fields: Fields of conditions; None: those of any policy.
    """
    known = request_fields([], [], []) if fields is None else fields
    return [*(field for field in known if field not in DERIVED), *_BESIDE_FIELDS]


_FACTS: Final = {
    "tokens.in": "tokens_in",
    "tokens.max-out": "tokens_max_out",
    "cost": "cost_microusd",
    **OF_CALLER,
}

SETTINGS: Final = (
    "lane",
    "priority",
    "deadline",
    "provider",
    "model",
    "retry",
    "affinity",
    "max-output",
    "allow",
    "hold",
    "deny",
)
"""Settings that a rule can decide and that are in force."""

_EXAMPLES: Final = {
    "hour": "14",
    "time": "22:30",
    "weekday": "3",
    "attempt": "2",
    "cost": "$0.10",
    "session.cost": "$5",
    "session.age": "2h",
    **dict.fromkeys(PLAN_SHARES, "85%"),
}


class RequestError(ValueError):
    """A `field=value` that does not describe a call; the message says what to write."""


@final
@attrs.frozen
class Step:
    """One rule, as this call met it."""

    rule: str
    at: str
    matches: bool
    decides: tuple[str, ...]
    """Settings that this rule is the first to name."""
    late: tuple[str, ...]
    """Settings that it names, and that a rule above had decided."""


@final
@attrs.frozen
class Explanation:
    """Decision about one call, with its reasons."""

    request: Request
    treatment: Decision
    denied: str | None
    """The words of the rejection; None: the call is admitted."""
    denied_by: Decider
    """The declaration that decides whether the call is admitted."""
    held: str | None
    """The words of the rule that holds it; None: none does."""
    held_until: Moment | None
    """When by the clock it is held no more; None: the clock alone does not end it."""
    steps: tuple[Step, ...]
    """Every rule, in order."""
    bounds: tuple[tuple[str, str, str], ...]
    """Bounds of its attempts: scope, amount, place of the declaration."""


def parse_request(
    checked: Checked,
    words: Sequence[str],
    *,
    defaults: Mapping[str, str] | None = None,
    apis_of: ApisOf | None = None,
) -> Request:
    """Return the call that `field=value ...` describes; what is not given has the language's default.

    Args:
        checked: A policy without errors.
        words: `agent=ci`, `model=claude-opus-4-1`, `tokens.in=12k`, `stream=true`, `header.x-job=7`, `api=openai`.
        defaults: Given so too, unless `words` say otherwise, and without a complaint where a field is not known.
        apis_of: The dialects of a path that is given without an `api`; None: those of all providers of the policy.

    Raises:
        RequestError: A word is no assignment, or of an unknown field, or of the wrong type.
    """
    assert checked.program is not None
    said: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise RequestError(f"`{word}` is no `field=value`")
        said[name] = value
    given = {name: value for name, value in (defaults or {}).items() if said.keys().isdisjoint(_alike(name))} | said
    call = _DescribedCall.of(checked)
    for name, text in given.items():
        call.set(name, text)
    if apis_of is not None and "path" in call.values and "api" not in given:
        call.apis = apis_of(call.values["path"], call.headers)
    request = call.request()
    if "cost" not in given:
        cost = checked.program.estimated_cost(request.apis, request.model, request.tokens_in, request.tokens_max_out)
        request = attrs.evolve(request, cost_microusd=cost)
    return request


@final
@attrs.define(eq=False)
class _DescribedCall:
    """A call, field by field."""

    program: Program
    fields: Mapping[str, Field]
    apis: tuple[Api, ...]
    values: dict[str, Any] = attrs.field(factory=dict, init=False)
    """Fields of conditions -> their values."""
    headers: dict[str, str] = attrs.field(factory=dict, init=False)
    meta: dict[str, str] = attrs.field(factory=dict, init=False)
    claimed: str | None = attrs.field(default=None, init=False)
    proven: str | None = attrs.field(default=None, init=False)

    @classmethod
    def of(cls, checked: Checked) -> _DescribedCall:
        """Return a call of which nothing is given yet."""
        assert checked.program is not None
        names = [list(checked.declarations.of(kind)) for kind in ("agent", "team", "provider")]
        apis = tuple(dict.fromkeys(provider.api for provider in checked.program.providers.values()))
        return cls(checked.program, request_fields(*names), apis)

    def set(self, name: str, text: str) -> None:
        """Set one field.

        Raises:
            RequestError: There is no such field, it follows from others, or the text is no value of it.
        """
        family, _, rest = name.partition(".")
        if name in DERIVED:
            raise RequestError(f"`{name}` cannot be given: {DERIVED[name]}")
        if name == "api":
            self.apis = () if text == NO_API else (_api(text),)
        elif name == "claim":
            self.claimed = text
        elif name == "token":
            declared = self.program.agents.get(text)
            self.proven = declared.name if declared is not None and declared.tokens else None
        elif family == "header" and rest:
            self.headers[rest.lower()] = text
        elif family == "meta" and rest:
            self.meta[rest] = text
        elif name in self.fields:
            self.values[name] = _value(self.fields[name], text)
        else:
            raise self._unknown(name)

    def _unknown(self, name: str) -> RequestError:
        known = given_fields(self.fields)
        meant = suggestion(name, known)
        hint = f"did you mean `{meant}`?" if meant else f"there are {one_of(known, most=99)}"
        return RequestError(f"no field `{name}`; {hint}")

    def request(self) -> Request:
        """Return the call, its caller proven or claimed as the policy identifies that agent."""
        agent = str(self.values.pop("agent", UNKNOWN_AGENT))
        if problem := contradiction(self.values):
            raise RequestError(problem)
        self.values = {name: value for name, value in self.values.items() if name != "time"} | time_of(self.values)
        facts: dict[str, Any] = {_FACTS.get(name, name): value for name, value in self.values.items()}
        if agent != UNKNOWN_AGENT and self.program.agents[agent].tokens:
            self.proven = agent
        elif agent != UNKNOWN_AGENT:
            self.claimed = agent
        return Request(
            apis=self.apis,
            token_agent=self.proven,
            claimed=self.claimed,
            headers=self.headers,
            meta=self.meta,
            **facts,
        )


def explain(checked: Checked, request: Request) -> Explanation:
    """Return the decision of a policy without errors about a call."""
    assert checked.program is not None
    treatment = checked.program.decide(request)
    denied, denied_by = _verdict(checked, treatment)
    steps = _steps(checked, request, treatment)
    model = treatment.model or request.model
    bounds = _bounds(checked, treatment, model) if denied is None else ()
    is_held = denied is None and treatment.verdict is Verdict.HOLD
    held, until = (treatment.message, _held_until(checked.program, request)) if is_held else (None, None)
    return Explanation(request, treatment, denied, denied_by, held, until, steps, bounds)


def _held_until(program: Program, request: Request) -> Moment | None:
    """Return when the clock changes the verdict, looked for over some weeks."""
    begin = Moment.of(request)
    for seconds in islice(seconds_to(program.clock_edges, begin.second), EDGES_MAX):
        then = begin.after(seconds)
        if program.decide(at_moment(request, then)).verdict is not Verdict.HOLD:
            return then
    return None


def _verdict(checked: Checked, treatment: Decision) -> tuple[str | None, Decider]:
    """Return why the scheduler rejects the call on arrival, if it does, and who decides that."""
    assert checked.program is not None
    if checked.program.rejects_as_unknown(treatment.agent):
        server = checked.declarations.of("server")[""]
        return "unknown agent: this policy only accepts declared agents", Decider("server", "", server.at)
    if treatment.verdict is Verdict.DENY:
        return treatment.message, treatment.decided["verdict"]
    if treatment.provider is None:
        return "no provider serves this call", BUILT_IN
    return None, treatment.decided["verdict"]


def reads_time(checked: Checked) -> bool:
    """Return True if a condition reads the time of day, the date or the weekday."""
    assert checked.program is not None
    return not checked.program.reads.isdisjoint((*CLOCKS, *DAYS))


def _alike(name: str) -> tuple[str, ...]:
    """Return the fields that say the same of a call."""
    return next((alike for alike in (CLOCKS, DAYS) if name in alike), (name,))


def _steps(checked: Checked, request: Request, treatment: Decision) -> tuple[Step, ...]:
    assert checked.program is not None
    routed = Router.of(checked.program.providers).route(request.apis, request.model)
    values = field_values(request, agent=treatment.agent, team=treatment.team, provider=routed)
    decided: set[str] = set()
    steps = []
    for name, declared in checked.declarations.of("rule").items():
        condition = checked.conditions["rule"][name]
        assert condition is not None  # the policy has no errors
        matches = holds(condition, values)
        named = [setting for setting in SETTINGS if setting in declared.settings]
        first = tuple(name for name in named if _slot(name) not in decided)
        if matches:
            decided.update(map(_slot, named))
            late = tuple(name for name in named if name not in first)
            steps.append(Step(name, declared.at, True, first, late))
        else:
            steps.append(Step(name, declared.at, False, (), ()))
    return tuple(steps)


def _slot(setting: str) -> str:
    """Return the slot of a setting: `allow`, `hold` and `deny` are the values of one."""
    return "verdict" if setting in ("allow", "hold", "deny") else setting


def _bounds(checked: Checked, treatment: Decision, model: str) -> tuple[tuple[str, str, str], ...]:
    program = checked.program
    assert program is not None
    assert treatment.provider is not None  # the call is admitted
    provider, lane, agent = program.providers[treatment.provider], program.lanes[treatment.lane], treatment.agent
    slots = f"{provider.limit} in flight"
    if program.store.url is not None:
        nodes = program.server.nodes * (program.server.workers or 1)
        floor = round(program.store.local * 1_000) * provider.limit // (1_000 * nodes)
        slots += f" at up to {nodes} nodes together, {floor} here while the store is away"
    elif program.server.workers != 1:
        slots += f" at {program.server.workers or 'all'} workers together"
    rows = [(f"provider {provider.name}", slots, provider.at)]
    if provider.accounts:
        rows = [
            (f"account {pool.name}", f"{pool.limit} in flight", provider.at)
            for pool in provider.pools()
            if pool.takes_lane(treatment.lane)
        ]
        rows += [
            (f"account {provider.name}.{one.name}", f"shares all of {provider.name}.{one.shares}", provider.at)
            for one in provider.accounts
            if one.shares is not None and one.takes_lane(treatment.lane)
        ]
    if provider.queue is not None:
        rows.append((f"provider {provider.name}", f"{provider.queue} waiting", provider.at))
    for pool in provider.pools():
        if pool.takes_lane(treatment.lane):
            rows += _limits(pool, pool.group_of(model) if provider.accounts else treatment.group)
    cap = lane.cap(provider.limit)
    reserved = sum(other.reserve.of(provider.limit) for other in program.lanes.values() if other is not lane)
    if reserved:
        rows.append(("other lanes", f"{reserved} of the provider's slots reserved", ""))
    if cap is not None:
        rows.append((f"lane {lane.name}", f"{cap} in flight at this provider", lane.at))
    if lane.queue is not None:
        rows.append((f"lane {lane.name}", f"{lane.queue} waiting", lane.at))
    declared = program.agent(agent)
    who = f"agent {agent}" if declared is not program.unknown else "each unknown caller"
    if declared.concurrency is not None:
        rows.append((who, f"{declared.concurrency} in flight", declared.at))
    rows += [(who, f"{limit}, over all providers", declared.at) for limit in declared.limits]
    if declared.queue is not None:
        rows.append((who, f"{declared.queue} waiting", declared.at))
    for name in treatment.budgets:
        budget = program.budgets[name]
        whose = f"budget {name}" if budget.per is Per.ALL else f"budget {name} of this {budget.partition}"
        rows += [(whose, allowance.shown(), budget.at) for allowance in budget.allowances]
    return tuple(rows)


def _limits(pool: ProviderSettings, glob: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield the limits of a provider or account for the models of one `limits` block."""
    for group in pool.groups:
        if group.glob != glob:
            continue
        of = f'limits "{group.glob}" of {pool.name}' if group.glob is not None else f"limits of {pool.name}"
        if group.concurrency is not None:
            yield of, f"{group.concurrency} in flight", pool.at
        for quota in group.quotas:
            yield of, str(quota), pool.at


def _api(text: str) -> Api:
    try:
        return Api(text)
    except ValueError:
        raise RequestError(f"no api `{text}`; there are {one_of([api.value for api in Api], most=99)}") from None


_AMOUNTS: Final[Mapping[Kind, Callable[[str], int]]] = {
    Kind.MONEY: money_microusd,
    Kind.SHARE: share,
    Kind.DURATION: duration_ns,
}


def _time(field: Field, text: str) -> int:
    clock = as_clock(text)
    if clock is None or ":" not in text:
        raise RequestError(f"`{field.name}={text}` is not a time of day; write `{field.name}={clock or '22:30'}`")
    return clock_minutes(clock)


def _value(field: Field, text: str) -> object:
    """Return the value that the language's literal stands for; quotes around a text may be left out."""
    if field.kind is Kind.FLAG:
        if text not in ("true", "false"):
            raise RequestError(f"`{field.name}` is a flag: `{field.name}=true` or `{field.name}=false`")
        return text == "true"
    if field.kind is Kind.ENUM:
        if text not in field.choices:
            meant = suggestion(text, field.choices)
            hint = f"did you mean `{meant}`?" if meant else f"there are {one_of(field.choices)}"
            raise RequestError(f"no {field.name} `{text}`; {hint}")
        return text
    if field.kind is Kind.DATE:
        date = text.strip('"')
        if not is_date(date):
            meant = as_date(date)
            raise RequestError(f"`{field.name}={text}` is not a date; write `{field.name}={meant or '2026-12-25'}`")
        return date
    if field.kind is Kind.ADDRESS:
        address = address_number(text.strip('"'))
        if address is None:
            raise RequestError(f"`{field.name}={text}` is not an address; write `{field.name}=10.1.2.3`")
        return address
    if field.kind is Kind.TIME:
        return _time(field, text)
    if field.kind is Kind.TEXT:
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if not QUANTITY.fullmatch(text):
        raise RequestError(f"`{field.name}={text}`: a number such as `{_EXAMPLES.get(field.name, '12k')}` is wanted")
    try:
        value = _AMOUNTS.get(field.kind, count)(text)
    except UnitError as error:
        raise RequestError(f"`{field.name}={text}`: {error.message}" + f"; {error.help}" * bool(error.help)) from error
    if value < field.least or (field.most is not None and value > field.most):
        bounds = f"{field.least} to {field.most}" if field.most is not None else f"{field.least} or more"
        raise RequestError(f"`{field.name}={text}`: it is {bounds}")
    return value
