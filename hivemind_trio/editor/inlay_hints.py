"""Beside what a test expects of a call: who decides it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from hivemind_trio.model import Decider
from hivemind_trio.policy import (
    Checked,
    Clock,
    Expect,
    Item,
    Name,
    Quantity,
    RequestError,
    String,
    explain,
    names_in,
    parse_request,
)

SETTING_OF: Final = {"admitted": "verdict", "held": "verdict", "denied": "verdict"} | {
    name: name for name in ("lane", "priority", "provider", "retry", "deadline", "max-output", "agent")
}
"""Subject of an `expect` -> setting that decides it."""


def hints(checked: Checked, source: int) -> Iterator[tuple[int, str]]:
    """Code point and text, for every `expect` of a test that gives one call. Nothing while the policy has errors."""
    if checked.program is None:
        return
    for test in checked.declarations.tests:
        block = test.item.block
        if test.item.span.source != source or block is None:
            continue
        given = [one for one in block.statements if isinstance(one, Item)]
        words = _given(given)
        if words is None:
            continue
        try:
            treatment = explain(checked, parse_request(checked, words)).treatment
        except RequestError:
            continue  # it gives what follows from something else, such as the team
        for statement in block.statements:
            if isinstance(statement, Expect):
                asked = dict.fromkeys(SETTING_OF[name] for name in names_in(statement.value) if name in SETTING_OF)
                said = [f"{name}: {_who(treatment.decided[name])}" for name in asked if name in treatment.decided]
                if said:
                    yield statement.span.end, f"  {', '.join(said)}"


def _who(decider: Decider) -> str:
    """As `explain` says it, the file without its folder."""
    return str(attrs.evolve(decider, at=decider.at.rpartition("/")[2]))


def _given(statements: list[Item]) -> list[str] | None:
    """`field=value` of the one call that a test is about; None where it is about many, or about a time."""
    if [one.head.text for one in statements] != ["given"] or statements[0].args:
        return None
    words = []
    for field in statements[0].block.statements if statements[0].block is not None else ():
        match field:
            case Item(head=Name(text=name), args=()):
                words.append(f"{name}=true")
            case Item(head=Name(text=name), args=(Name(text=value) | Quantity(text=value) | Clock(text=value),)):
                words.append(f"{name}={value}")
            case Item(head=Name(text=name), args=(String(value=value),)):
                words.append(f"{name}={value}")
            case _:
                return None
    return words
