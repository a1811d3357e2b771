"""Repetition of a recorded session: its events through a fresh scheduler, and the first command that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, final

import attrs

from hivemind_trio.policy import BudgetWindow, MemoryFiles, Program, check, refuses_unknown
from hivemind_trio.scheduler import PolicyLoaded, Scheduler
from hivemind_trio.store import PolicyFiles, RecordedEvent, shown

SECOND_NS: Final = 1_000_000_000


class NotReplayable(Exception):  # noqa: N818 - a state of the recording
    """A session cannot be repeated. The message says why."""


@final
@attrs.frozen(kw_only=True)
class Difference:
    """The first event whose commands differ."""

    number: int
    at_ns: int
    event: str
    """Name of the event, and the call that it is about."""
    recorded: list[Any]
    replayed: list[Any]

    def fields(self) -> list[tuple[str, Any, Any]]:
        """Return the fields that differ: path, recorded and replayed value; None: there is none."""
        found: list[tuple[str, Any, Any]] = []
        _compare("", _named(self.recorded), _named(self.replayed), found)
        return found


@final
@attrs.define
class Replay:
    """A fresh scheduler that is told what another one was told.

    Args:
        policy: Returns the files of a policy by its hash; None: they are not known.
    """

    _policy: Callable[[str], PolicyFiles | None]
    events: int = attrs.field(default=0, init=False)
    commands: int = attrs.field(default=0, init=False)
    policies: int = attrs.field(default=0, init=False)
    _turns: dict[BudgetWindow, int] = attrs.field(factory=dict, init=False)

    def run(self, first: str, events: Iterable[RecordedEvent]) -> Difference | None:
        """Repeat a session; return the first difference, None: there is none.

        Args:
            first: Hash of the policy that the session began with.
            events: Of the session, in order.

        Raises:
            NotReplayable: A policy or an event is missing.
        """
        scheduler = Scheduler(self._compiled(first), 0, self._turns_of)
        for one in events:
            if one.number != self.events + 1:
                raise NotReplayable(
                    f"events {self.events + 1} to {one.number - 1} are missing: the journal could not keep up, "
                    "or they were deleted by age or size"
                )
            self.events += 1
            self._turns.update(one.turns)
            event = one.event if one.event is not None else PolicyLoaded(self._compiled(one.policy))
            replayed = shown(scheduler.handle(event, one.at_ns))
            self.commands += len(replayed)
            if replayed != one.commands:
                call = getattr(event, "call_id", None) or getattr(getattr(event, "call", None), "id", None)
                return Difference(
                    number=one.number,
                    at_ns=one.at_ns,
                    event=type(event).__name__ + (f" of call {call}" if call is not None else ""),
                    recorded=one.commands,
                    replayed=replayed,
                )
        return None

    def _turns_of(self, now_ns: int, window: BudgetWindow) -> int:
        # Nothing was recorded where a decision asks for what the recorded one did not: that is a difference soon.
        return max(now_ns + 1, self._turns.get(window, now_ns + window.length_ns))

    def _compiled(self, policy_hash: str) -> Program:
        files = self._policy(policy_hash)
        if files is None:
            raise NotReplayable(f"the text of policy {policy_hash[:8]} is not in the journal")
        allowed = tuple(f"{Path(name).parent}" for name in files.files)
        checked = check(files.path, MemoryFiles(files.files), allowed=allowed)
        if checked.program is None:
            first = checked.diagnostics[0].message
            raise NotReplayable(f"policy {policy_hash[:8]} has errors in this version: {first}")
        self.policies += 1
        if files.host is None:
            return checked.program
        refuse = refuses_unknown(checked.declarations, files.host)
        return attrs.evolve(checked.program, server=attrs.evolve(checked.program.server, refuse_unknown=refuse))


def _named(commands: list[Any]) -> dict[str, Any]:
    """Return commands by their place, name and call."""
    return {f"{place} {name}": fields for place, (name, fields) in enumerate(commands, 1)}


def _compare(path: str, one: Any, other: Any, found: list[tuple[str, Any, Any]]) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            _compare(f"{path}.{name}" if path else f"{name}", one.get(name), other.get(name), found)
    elif one != other:
        found.append((path, one, other))
