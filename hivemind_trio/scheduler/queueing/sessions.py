"""Sessions of clients: the size, length, cost and age of each.

Agents call turn by turn, and each turn sends the whole conversation again. What a session has come to is known from
the usage of its answers alone; nothing is read of a prompt.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, TypeVar, final

import attrs

from hivemind_trio.model import Decision, Request, Usage
from hivemind_trio.policy import UNKNOWN_AGENT
from hivemind_trio.scheduler.protocol.beliefs import KeptSessions, KeptThread, KeptTotal
from hivemind_trio.scheduler.protocol.call import Call, SessionFacts

SESSIONS_MAX: Final = 4_096
"""Sessions that are remembered; of more, those that were seen last."""

KEPT_MAX: Final = 512
"""Sessions, and conversations, that are kept for the next process: those that were seen last."""

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
    agent: str = ""
    """Agent of the last turn; of a caller that is no declared one, what callers are known by."""
    model: str = ""
    """Model that it was sent with."""
    provider: str = ""
    seen_ns: int = 0
    """End of the last turn."""

    def on_served(self, tokens: int, *, tools: bool) -> bool:
        """Count a call that was served; False: it is no turn.

        Clients ask for titles and summaries beside the conversation. In a session with tools these are the calls
        without any: they are no turns, and their small prompts are not its context.
        """
        if self.uses_tools and not tools:
            return False
        if tools and not self.uses_tools:
            self.uses_tools, self.turns = True, 0
        if not self.turns:
            self.first_context = tokens
        self.turns += 1
        self.context = tokens
        return True

    @property
    def growth(self) -> int:
        """Tokens by which the context has grown with each turn, on average; 0: it has not."""
        return max(0, self.context - self.first_context) // (self.turns - 1) if self.turns > 1 else 0

    def turns_left(self, window: int | None) -> int | None:
        """Return the turns until a context window is full; None: it does not grow, or the window is unknown."""
        return max(0, window - self.context) // self.growth if window is not None and self.growth else None


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

    def on_ended(
        self, call: Call, decision: Decision, model: str, usage: Usage, cost: int, now_ns: int, *, served: bool
    ) -> None:
        """Take note of what an attempt has taken.

        Args:
            model: As it was sent.
        """
        if not call.job:
            return
        total = self.totals.get(_whole(call))
        if total is not None:  # else it has been forgotten meanwhile
            total.cost += cost
        if served:
            key = self.key(call)
            thread = _touched(self.threads, key, self.threads.get(key) or SessionThread())
            if thread.on_served(usage.total, tools=call.request.tools):
                agent = decision.agent if decision.agent != UNKNOWN_AGENT else call.caller
                thread.agent, thread.model, thread.provider = agent, model, decision.provider or ""
                thread.seen_ns = now_ns

    def thread(self, call: Call) -> SessionThread | None:
        """Return the conversation that a call belongs to; None: nothing of it has been served."""
        return self.threads.get(self.key(call)) if call.job else None

    def key(self, call: Call) -> SessionKey:
        """Return the key of the conversation that a call belongs to."""
        return _who(call), call.job

    def total_of(self, key: SessionKey) -> SessionTotal | None:
        """Return the whole session of a conversation; None: it has been forgotten."""
        return self.totals.get((key[0], _session(key[1])))

    def known(self, call: Call, now_ns: int) -> SessionFacts | None:
        """Return what is known of the session of a call; None: it is of none."""
        thread, total = self.thread(call), self.totals.get(_whole(call))
        if not call.job or total is None:
            return None
        return SessionFacts(
            context=thread.context if thread is not None else 0,
            turns=thread.turns if thread is not None else 0,
            cost=total.cost,
            age_ns=max(0, now_ns - total.first_ns),
        )

    def facts(self, call: Call, now_ns: int) -> Request:
        """Return the request of a call with what is known of its session."""
        known = self.known(call, now_ns)
        if known is None:
            return call.request
        return attrs.evolve(
            call.request,
            session_context=known.context,
            session_turns=known.turns,
            session_cost=known.cost,
            session_age=known.age_ns,
        )

    def kept(self) -> KeptSessions:
        """Return the sessions that were seen last, for the next process."""
        return KeptSessions(
            tuple(
                KeptThread(
                    caller=caller,
                    job=job,
                    context=one.context,
                    turns=one.turns,
                    first_context=one.first_context,
                    uses_tools=one.uses_tools,
                    agent=one.agent,
                    model=one.model,
                    provider=one.provider,
                    seen_ns=one.seen_ns,
                )
                for (caller, job), one in _last(self.threads)
            ),
            tuple(
                KeptTotal(caller=caller, session=session, first_ns=one.first_ns, cost=one.cost)
                for (caller, session), one in _last(self.totals)
            ),
        )

    def restore(self, kept: KeptSessions) -> None:
        """Begin with the sessions of an earlier process; those that are known here already stay as they are."""
        self.threads = {
            (one.caller, one.job): SessionThread(
                context=one.context,
                turns=one.turns,
                first_context=one.first_context,
                uses_tools=one.uses_tools,
                agent=one.agent,
                model=one.model,
                provider=one.provider,
                seen_ns=one.seen_ns,
            )
            for one in kept.threads[-KEPT_MAX:]
        } | self.threads
        self.totals = {
            (one.caller, one.session): SessionTotal(one.first_ns, one.cost) for one in kept.totals[-KEPT_MAX:]
        } | self.totals


def _who(call: Call) -> str:
    """Return by what a caller is known before any rule, whatever connection it uses."""
    # Callers are named within the scope of what they present; with another credential it is another's session.
    scope = call.credential or call.caller.rpartition("@")[2]
    return call.request.token_agent or f"{call.request.claimed or ''}@{scope}"


def _whole(call: Call) -> SessionKey:
    return _who(call), _session(call.job)


def _session(job: str) -> str:
    """Return the session of a conversation: that of a sub-agent is `session/agent`."""
    return job.partition("/")[0]


def _last(table: dict[SessionKey, _Record]) -> list[tuple[SessionKey, _Record]]:
    return list(islice(reversed(table.items()), KEPT_MAX))[::-1]


def _touched(table: dict[SessionKey, _Record], key: SessionKey, record: _Record) -> _Record:
    """Put a record at the end, and forget the first one of too many."""
    table.pop(key, None)
    table[key] = record
    if len(table) > SESSIONS_MAX:
        del table[next(iter(table))]
    return record
