"""Descriptions of the fields of conditions and of the words of conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FIELDS: Final[Mapping[str, str]] = {
    "agent": "A declared name. Who is none: `unknown`.",
    "team": "A declared name, the agent's. Who has none: `none`.",
    "provider": "A declared name: where the call would go before any rule.",
    "model": 'Text: what the call asks for. `""` where it does not say.',
    "path": "Text: of the request, without its query.",
    "method": "Text: `POST`, `GET`, ...",
    "stream": "Flag: the answer is to be streamed.",
    "tools": "Flag: the call brings tools.",
    "images": "Flag: the call brings images.",
    "tokens.in": "Count: input tokens, as estimated.",
    "tokens.max-out": "Count: the most output tokens that the call allows.",
    "tokens.total": "Count: both together.",
    "attempt": "Count, from 1: which attempt this is.",
    "hour": "0 to 23, in the server's time zone.",
    "weekday": "1, Monday, to 7, in the server's time zone.",
    "time": "Time of day, `22:30`, in the server's time zone. `time in 22:00..06:30` goes over midnight.",
    "date": 'Text, `"2026-12-25"`, in the server\'s time zone; `~` takes globs such as `"*-12-25"`.',
    "client.address": 'Address of the caller: `client.address in ["10.0.0.0/8"]`; see `server { forwarded-by }`.',
    "plan.session": "Ratio: used share of the account's plan in windows up to a day long, as last read.",
    "plan.week": "Ratio: the same in windows up to eight days long.",
    "plan.month": "Ratio: the same in longer windows.",
    "plan.overage": "Flag: the account pays beyond its plan.",
    "session.context": "Count: tokens of the session's last call, input and output.",
    "session.turns": "Count: calls of the session that were served.",
    "session.cost": "Money: cost of the session so far.",
    "session.age": "Duration: time since the session's first call.",
    "cost": "Money: the estimate at the model's price.",
}
"""Those of every call; beside these there are `header.NAME` and `meta.NAME`."""

FAMILIES: Final[Mapping[str, str]] = {
    "header": 'Text: a request header, its name in either case. `""` where the call has none.',
    "meta": 'Text: an entry of the body\'s `metadata`. `""` where the call has none.',
}

OUTCOME_FAMILIES: Final[Mapping[str, str]] = {
    "account": "Flag: the call may use that account of the provider that it goes to.",
    "budget": "Flag: the call's cost counts against that budget.",
    "tag": "Flag: the call has that tag.",
}
"""Subjects of `expect` that end with a declared name."""

OUTCOMES: Final[Mapping[str, str]] = {
    "admitted": "Flag: no rule denies or holds the call.",
    "held": "Flag: a rule holds the call on arrival; it has a lane, a priority and a provider.",
    "denied": "Flag: a rule denies the call, or nobody serves it.",
    "lane": "A declared name: where the call waits.",
    "priority": "Count: the call's priority.",
    "deadline": "Duration: how long the call may wait.",
    "retry": "A declared name: the call's retry class.",
    "max-output": "Count: the output tokens that the call may ask for at most.",
}
"""Subjects of `expect` beside the fields."""

WORDS: Final[Mapping[str, str]] = {
    "when": "The condition under which this holds.",
    "let": "`let NAME = ...`: a name for a list, a text, a number or a condition.",
    "expect": "`expect CONDITION`, in a `test`: what must be so.",
    "and": "Both hold. Binds tighter than `or`.",
    "or": "One of them holds.",
    "not": "It does not hold. Binds tighter than `and`.",
    "in": "One of a list, or within a range, both ends included.",
    "was": "What it was called before: a running proxy keeps what it has counted and learned under that name.",
    "extends": "Has the settings of another one of its kind, but for those it says itself.",
}

TESTS: Final[Mapping[str, str]] = {
    "given": "`given { agent ci; hour 22 }`: one call. `given any when CONDITION`: every call that there can be.",
    "load": "`load NAME { agent ci; arrive 300/min }`: calls that keep coming, against a simulated upstream.",
    "upstream": "`upstream PROVIDER { latency 2s..6s; fail 529 2% }`: how that provider behaves in this test.",
    "fault": "`fault store from 3m to 4m`, `fault node 2 from 5m`: a part of several nodes that fails for a time.",
    "run": "`run 10m seed 7 nodes 2`: simulated time, seed of chance, and proxies that share the limits.",
}
