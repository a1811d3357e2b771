"""A call by what it brings, in the words of `explain`, so that two policies can be asked about the same call.

The same call is another `Request` to each policy: it is a declared agent's for one and nobody's for the other, and it
costs what the one's prices say, or the other's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from hivemind_trio.model import Api, Request
from hivemind_trio.model.addresses import address_text
from hivemind_trio.model.dates import date_on, weekday_of
from hivemind_trio.policy.language.condition_typing import PLAN_SHARES
from hivemind_trio.policy.language.unit_text import clock, duration, money

from .program import Clue, Program

Facts = Mapping[str, str | int | bool]
"""Field -> value: `token`, `claim`, `api`, `model`, `path`, `tokens.in`, ..., `header.NAME`, `meta.NAME`.

`token` is the agent whose token the call has, `claim` whom it merely says to be; `api` may be `none`.
"""

CLOCKS: Final = ("time", "hour")
DAYS: Final = ("date", "weekday")
"""Fields that say the same of a call, the finer one first."""

ApisOf = Callable[[str, Mapping[str, str]], tuple[Api, ...]]
"""The dialects of a path, given the headers, likeliest first; `wire.endpoint` knows them."""

NO_API: Final = "none"
"""Value for a call of no known dialect."""

OF_CALLER: Final = {
    "client.address": "client_address",
    "plan.session": "plan_session",
    "plan.week": "plan_week",
    "plan.month": "plan_month",
    "plan.overage": "plan_overage",
    "session.context": "session_context",
    "session.turns": "session_turns",
    "session.cost": "session_cost",
    "session.age": "session_age",
}
"""Fields about the caller, its plan and its session, under the names that a request has for them."""

FIELDS: Final = {
    "method": "method",
    "path": "path",
    "model": "model",
    "stream": "stream",
    "tools": "tools",
    "images": "images",
    "tokens.in": "tokens_in",
    "tokens.max-out": "tokens_max_out",
    "attempt": "attempt",
    "hour": "hour",
    "weekday": "weekday",
    "date": "date",
    **OF_CALLER,
}
"""Fields that a request has under their own names; the cost follows from model and tokens."""

_WRITTEN: Final = [name for field in FIELDS for name in ((field, "time") if field == "hour" else (field,))]
_ORDER: Final = {field: place for place, field in enumerate(("agent", "token", "claim", "api", *_WRITTEN))}

_BARE: Final = re.compile(r"[\w@%+:,./=-]*", re.ASCII)


def request_of(program: Program, facts: Facts, apis_of: ApisOf | None = None) -> Request:
    """Return the request that such a call is to a policy; every real call has a day.

    Without an `api` and a known path it is taken to speak what the policy's providers speak, as `explain` does.
    """
    values: dict[str, Any] = {FIELDS[field]: value for field, value in facts.items() if field in FIELDS}
    values |= time_of(facts) | day_of(facts)
    headers = _under("header.", facts)
    apis = _apis(program, facts, headers, apis_of)
    tokens = values.get("tokens_in", 0), values.get("tokens_max_out", 0)
    return Request(
        token_agent=_token(program, facts),
        claimed=_claim(program, facts),
        apis=apis,
        headers=headers,
        meta=_under("meta.", facts),
        cost_microusd=program.estimated_cost(apis, str(values.get("model", "")), *tokens),
        **values,
    )


def contradiction(facts: Facts) -> str:
    """Return the contradiction between fields of a call that say the same; empty: there is none."""
    if "time" in facts and "hour" in facts and int(facts["time"]) // 60 != facts["hour"]:
        return f"`time` {clock(int(facts['time']))} is not in `hour` {facts['hour']}"
    if "date" in facts and "weekday" in facts and weekday_of(str(facts["date"])) != facts["weekday"]:
        return f"`date` {facts['date']} is `weekday` {weekday_of(str(facts['date']))}, not {facts['weekday']}"
    return ""


def time_of(facts: Facts) -> dict[str, int | str]:
    """Return what follows from `time` and `date`, if they are given, by the names of `Request`'s fields."""
    found: dict[str, int | str] = {}
    if "time" in facts:
        found["hour"], found["minute"] = divmod(int(facts["time"]), 60)
    if "date" in facts or "weekday" in facts:
        found |= day_of(facts)
    return found


def day_of(facts: Facts) -> dict[str, str | int]:
    """Return date and weekday of a call, by the names of `Request`'s fields; each follows from the other."""
    if "date" in facts:
        return {"weekday": weekday_of(str(facts["date"])), "date": str(facts["date"])}
    weekday = int(facts.get("weekday", 1))
    return {"weekday": weekday, "date": date_on(weekday)}


def shown(facts: Facts, programs: Iterable[Program]) -> Facts:
    """Return the same for people: who is told apart in the same way by all of them is an `agent`. In order."""
    programs = tuple(programs)
    named: dict[str, str | int | bool] = {}
    for field, value in facts.items():
        if field == "time" and int(value) % 60 == 0 and not any("time" in program.reads for program in programs):
            named["hour"] = int(value) // 60
            continue
        agents = [program.agents.get(str(value)) for program in programs] if field in ("token", "claim") else []
        plain = bool(agents) and all(one is not None and bool(one.tokens) is (field == "token") for one in agents)
        named["agent" if plain else field] = value
    return dict(sorted(named.items(), key=lambda fact: (_ORDER.get(fact[0], len(_ORDER)), fact[0])))


def words(facts: Facts) -> tuple[str, ...]:
    """`agent=ci model=claude-opus-4-1`: to be pasted behind `hivemind-trio explain FILE`."""
    return tuple(_word(field, value) for field, value in facts.items())


def literal(field: str, value: str | int | bool) -> str:
    """Return the value of a field as a policy writes it, without quotes."""
    if field in PLAN_SHARES:
        return f"{int(value) / 10_000:g}%"
    if field == "time":
        return clock(int(value))
    if field == "client.address":
        return address_text(int(value))
    if field == "session.cost":
        return money(int(value))
    return duration(int(value)) if field == "session.age" else str(value)


def _word(field: str, value: str | int | bool) -> str:
    text = str(value).lower() if isinstance(value, bool) else literal(field, value)
    word = f"{field}={text}"
    return word if _BARE.fullmatch(word) else shlex.quote(word)


def _token(program: Program, facts: Facts) -> str | None:
    """Only of an agent that the policy gives one; another token is nobody's."""
    declared = program.agents.get(str(facts["token"])) if "token" in facts else None
    return declared.name if declared is not None and declared.tokens else None


def _claim(program: Program, facts: Facts) -> str | None:
    believed = Clue.URL in program.server.identify or Clue.HEADER in program.server.identify
    return str(facts["claim"]) if "claim" in facts and believed else None


def _apis(program: Program, facts: Facts, headers: Mapping[str, str], apis_of: ApisOf | None) -> tuple[Api, ...]:
    if apis_of is not None and "path" in facts:
        return apis_of(str(facts["path"]), headers)
    if "api" in facts:
        return () if facts["api"] == NO_API else (Api(str(facts["api"])),)
    return tuple(dict.fromkeys(provider.api for provider in program.providers.values()))


def _under(prefix: str, facts: Facts) -> dict[str, str]:
    return {field[len(prefix) :].lower() if prefix == "header." else field[len(prefix) :]: str(value)
            for field, value in facts.items() if field.startswith(prefix)}  # fmt: skip
