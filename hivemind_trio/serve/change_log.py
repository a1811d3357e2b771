"""Log of the changes that a new policy makes, by the comparison of `hivemind-trio diff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from hivemind_trio.policy import CallChange, Change, DecisionChange, visible

SAID_MAX: Final = 20
"""Lines for the settings, and as many for the calls; `hivemind-trio diff` shows the rest."""


def say_changes(log: structlog.typing.FilteringBoundLogger, changes: Sequence[Change]) -> None:
    """A line for each setting that has changed, and for each declaration that came or went."""
    for change in changes[:SAID_MAX]:
        fields = {"setting": change.setting, "before": change.before, "after": change.after}
        fields |= {"state": str(change.effect.state), "detail": change.effect.says} if change.effect.says else {}
        fields |= {"code": change.effect.code}
        say = log.warning if change.effect.code else log.info
        say(str(change.verb), what=visible(change.subject), **_shown(fields))
    _say_more(log, "more settings have changed", len(changes))


def say_calls(log: structlog.typing.FilteringBoundLogger, calls: Sequence[CallChange], *, complete: bool) -> None:
    """A line for each kind of call that is treated otherwise from now on."""
    for call in calls[:SAID_MAX]:
        log.info("calls treated differently", example=visible(" ".join(call.example)), **_shown(_turned(call.turns)))
    _say_more(log, "more calls are treated differently", len(calls))
    if not complete:
        log.info("not every call could be looked at", see="hivemind-trio diff")


def _turned(turns: Sequence[DecisionChange]) -> dict[str, str]:
    """Setting -> what became of it. Of tags, warnings and budgets, of which a call may have several, those that it has
    now and those that it has no longer: `budgets="+team -each"`. A field's name is never an author's word."""
    fields: dict[str, str] = {}
    for turn in turns:
        if turn.of_several is None:
            fields[turn.setting] = f"{turn.before} -> {turn.after}"
            continue
        kind, name, has = turn.of_several
        fields[f"{kind}s"] = f"{fields.get(f'{kind}s', '')} {'+' if has else '-'}{name}".lstrip()
    return fields


def _shown(fields: dict[str, str]) -> dict[str, str]:
    return {name: visible(value) for name, value in fields.items() if value}


def _say_more(log: structlog.typing.FilteringBoundLogger, event: str, number: int) -> None:
    if number > SAID_MAX:
        log.info(event, more=number - SAID_MAX, see="hivemind-trio diff")
