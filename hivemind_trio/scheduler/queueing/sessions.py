"""Sessions of clients: the size, length, cost and age of each.

Agents call turn by turn, and each turn sends the whole conversation again. What a session has come to is known from
the usage of its answers alone; nothing is read of a prompt.
"""

from __future__ import annotations

from typing import Final, TypeVar, final

import attrs

from hivemind_trio.model import Request, Usage
from hivemind_trio.scheduler.protocol.call import Call

SESSIONS_MAX: Final = 4_096
"""Sessions that are remembered; of more, those that were seen last."""

SessionKey = tuple[str, str]
"""The caller, and the name that its client gives the session."""

_Record = TypeVar("_Record")


@final
@attrs.define(eq=False)
class SessionThread:
    """One conversation of a session: its own, or that of one of its sub-agents."""

    context: int = 0
    """Tokens of the last call, output included: about so many the next one sends."""
    turns: int = 0
    """Calls that were served."""
    first_context: int = 0
    """Tokens of the first call."""
    uses_tools: bool = False

    def on_served(self, tokens: int, *, tools: bool) -> None:
        """Count a call that was served.

        Clients ask for titles and summaries beside the conversation. In a session with tools these are the calls
        without any: they are no turns, and their small prompts are not its context.
        """
        if self.uses_tools and not tools:
            return
        if tools and not self.uses_tools:
            self.uses_tools, self.turns = True, 0
        if not self.turns:
            self.first_context = tokens
        self.turns += 1
        self.context = tokens

    @property
    def growth(self) -> int:
        """Tokens by which the context has grown with each turn, on average; 0: it has not."""
        return max(0, self.context - self.first_context) // (self.turns - 1) if self.turns > 1 else 0


@final
@attrs.define(eq=False)
class SessionTotal:
    """A whole session, with its sub-agents."""

    first_ns: int
    cost: int = 0
    """In millionths of a dollar."""


@final
@attrs.define(eq=False)
class SessionTable:
    """The sessions that were seen lately. O(1) for each call."""

    threads: dict[SessionKey, SessionThread] = attrs.field(factory=dict, init=False)
    totals: dict[SessionKey, SessionTotal] = attrs.field(factory=dict, init=False)
    """Those seen last at the end, in both."""

    def begin(self, call: Call, now_ns: int) -> None:
        """Take note of a call that arrives: a session is as old as its first one."""
        if call.job:
            key = _whole(call)
            _touched(self.totals, key, self.totals.get(key) or SessionTotal(now_ns))

    def on_ended(self, call: Call, usage: Usage, cost: int, *, served: bool) -> None:
        """Take note of what an attempt has taken."""
        if not call.job:
            return
        total = self.totals.get(_whole(call))
        if total is not None:  # else it has been forgotten meanwhile
            total.cost += cost
        if served:
            key = _who(call), call.job
            thread = _touched(self.threads, key, self.threads.get(key) or SessionThread())
            thread.on_served(usage.total, tools=call.request.tools)

    def thread(self, call: Call) -> SessionThread | None:
        """Return the conversation that a call belongs to; None: nothing of it has been served."""
        return self.threads.get((_who(call), call.job)) if call.job else None

    def facts(self, call: Call, now_ns: int) -> Request:
        """Return the request of a call with what is known of its session."""
        thread, total = self.thread(call), self.totals.get(_whole(call))
        if not call.job or total is None:
            return call.request
        return attrs.evolve(
            call.request,
            session_context=thread.context if thread is not None else 0,
            session_turns=thread.turns if thread is not None else 0,
            session_cost=total.cost,
            session_age=now_ns - total.first_ns,
        )


def _who(call: Call) -> str:
    """Return by what a caller is known before any rule, whatever connection it uses."""
    # Callers are named within the scope of what they present; with another credential it is another's session.
    scope = call.credential or call.caller.rpartition("@")[2]
    return call.request.token_agent or f"{call.request.claimed or ''}@{scope}"


def _whole(call: Call) -> SessionKey:
    return _who(call), call.job.partition("/")[0]


def _touched(table: dict[SessionKey, _Record], key: SessionKey, record: _Record) -> _Record:
    """Put a record at the end, and forget the first one of too many."""
    table.pop(key, None)
    table[key] = record
    if len(table) > SESSIONS_MAX:
        del table[next(iter(table))]
    return record
