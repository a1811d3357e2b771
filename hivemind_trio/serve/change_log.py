"""Log of the changes that a new policy makes, by the comparison of `hivemind-trio diff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from hivemind_trio.policy import CallChange, Change, DecisionChange, visible

from .events import (
    DecisionChanged,
    DecisionChangesOmitted,
    DecisionDiffIncomplete,
    SettingChanged,
    SettingChangesOmitted,
    StateReset,
)
from .log import EventLog

SAID_MAX: Final = 20
"""Lines for the settings, and as many for the calls; `hivemind-trio diff` shows the rest."""


def say_changes(log: EventLog, changes: Sequence[Change]) -> None:
    """Log each setting that has changed, and each declaration that came or went."""
    for change in changes[:SAID_MAX]:
        log.emit(_setting_event(change))
    if len(changes) > SAID_MAX:
        log.emit(SettingChangesOmitted(count=len(changes) - SAID_MAX))


def _setting_event(change: Change) -> SettingChanged | StateReset:
    """Return the event of one change: with a diagnostic's code, the change forgets state."""
    effect = change.effect
    event = SettingChanged(
        declaration=visible(change.subject),
        setting=visible(change.setting),
        change=change.verb,
        before=visible(change.before),
        after=visible(change.after),
        state=effect.state if effect.says else None,
        effect=visible(effect.says),
    )
    return StateReset(code=effect.code, **attrs.asdict(event, recurse=False)) if effect.code else event


def say_calls(log: EventLog, calls: Sequence[CallChange], *, complete: bool) -> None:
    """Log each kind of call for which the decision has changed."""
    for call in calls[:SAID_MAX]:
        turned = {name: visible(value) for name, value in _turned(call.turns).items()}
        log.emit(DecisionChanged(example=visible(" ".join(call.example)), **turned))
    if len(calls) > SAID_MAX:
        log.emit(DecisionChangesOmitted(count=len(calls) - SAID_MAX))
    if not complete:
        log.emit(DecisionDiffIncomplete())


def _turned(turns: Sequence[DecisionChange]) -> dict[str, str]:
    """Return, for each setting, its change.

    A call may have several tags, warnings and budgets: those that it has now and those that it has no longer,
    `budgets="+team -each"`. A field's name is never an author's word.
    """
    fields: dict[str, str] = {}
    for turn in turns:
        if turn.of_several is None:
            fields[turn.setting.replace("-", "_")] = f"{turn.before} -> {turn.after}"
            continue
        kind, name, has = turn.of_several
        fields[f"{kind}s"] = f"{fields.get(f'{kind}s', '')} {'+' if has else '-'}{name}".lstrip()
    return fields
