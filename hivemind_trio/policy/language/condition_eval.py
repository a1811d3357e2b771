"""A condition, evaluated by walking its tree: what the compiled one is held against, and what `explain` uses."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Final, assert_never

from hivemind_trio.model import Request

from .condition_typing import AllOf, Always, AnyOf, Condition, Flag, Like, Member, Negation, Relation
from .globs import matcher

_RELATIONS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(condition: Condition, values: Mapping[str, str | int | bool]) -> bool:
    """Return True if it holds for these field values; a missing `header.` or `meta.` is empty."""
    match condition:
        case Always():
            return True
        case AllOf(items=items):
            return all(holds(item, values) for item in items)
        case AnyOf(items=items):
            return any(holds(item, values) for item in items)
        case Negation(item=item):
            return not holds(item, values)
        case Flag(field=field):
            return bool(values[field])
        case Relation(field=field, op=op, value=value):
            return bool(_RELATIONS[op](values.get(field, ""), value))
        case Member(field=field, values=members, ranges=ranges):
            value = values.get(field, "")
            return value in members or any(low <= value <= high for low, high in ranges if isinstance(value, int))
        case Like(field=field, globs=globs):
            return any(matcher(glob)(str(values.get(field, ""))) for glob in globs)
        case _:
            assert_never(condition)


def field_values(request: Request, *, agent: str, team: str, provider: str | None) -> dict[str, str | int | bool]:
    """Return the fields of a request, by their names in the language."""
    return {
        "agent": agent,
        "team": team,
        "provider": provider or "",
        "model": request.model,
        "path": request.path,
        "method": request.method,
        "stream": request.stream,
        "tools": request.tools,
        "images": request.images,
        "tokens.in": request.tokens_in,
        "tokens.max-out": request.tokens_max_out,
        "tokens.total": request.tokens_total,
        "cost": request.cost_microusd,
        "attempt": request.attempt,
        "hour": request.hour,
        "weekday": request.weekday,
        "time": request.time,
        "date": request.date,
        "client.address": request.client_address,
        "plan.session": request.plan_session,
        "plan.week": request.plan_week,
        "plan.month": request.plan_month,
        "plan.overage": request.plan_overage,
        "session.context": request.session_context,
        "session.turns": request.session_turns,
        "session.cost": request.session_cost,
        "session.age": request.session_age,
        **{f"header.{name}": value for name, value in request.headers.items()},
        **{f"meta.{name}": value for name, value in request.meta.items()},
    }
