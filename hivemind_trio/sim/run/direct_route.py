"""The way without us: each client sends straight to the provider that its call would have gone to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import final

import attrs

from hivemind_trio.model import Decision
from hivemind_trio.policy import Program
from hivemind_trio.sim.agents.client import ClientReply
from hivemind_trio.sim.agents.request import Asking
from hivemind_trio.sim.provider import wire_format
from hivemind_trio.sim.provider.provider import Provider
from hivemind_trio.sim.results.recorder import RunRecorder

from .attempt import End, How, SimulatedAttempt
from .event_queue import Agenda
from .overhead_model import Road

UNSERVED = ClientReply(status=404, why="no provider serves it")


@final
@attrs.define(eq=False)
class Direct:
    """Nothing is held, nothing is refused but by the provider; rules that say where a call goes are kept to."""

    program: Program
    agenda: Agenda
    providers: Mapping[tuple[str, str | None], Provider]
    books: RunRecorder
    road: Road | None = None

    def send(self, asking: Asking) -> None:
        """Send the request of a client now."""
        treatment = self.program.decide(asking.request)
        if treatment.provider is not None:  # nobody chooses an account: agents know one key
            first = next(self.program.providers[treatment.provider].pools())
            group = first.group_of(treatment.model or asking.request.model)
            treatment = attrs.evolve(treatment, provider=first.name, group=group)
        self.books.call_over(asking.load, treatment, 0 if treatment.provider is not None else None)
        if treatment.provider is None:
            asking.replied(UNSERVED)
            return
        SimulatedAttempt(
            self.agenda,
            self.providers[treatment.provider, treatment.group],
            asking.turn.ask,
            timeouts=None,
            leaves_ns=asking.sent_ns + asking.client.silence_ns,
            silence_ns=asking.client.silence_ns,
            over=partial(self._over, asking, treatment),
            road=self.road,
        ).begin()

    def _over(self, asking: Asking, treatment: Decision, end: End) -> None:
        if end.usage is not None:
            self.books.spend(treatment, asking.request.model, end.usage)
        assert treatment.provider is not None
        asking.replied(_reply(end, self.program, treatment.provider))


def _reply(end: End, program: Program, provider: str) -> ClientReply:
    match end.how:
        case How.WHOLE:
            return ClientReply(status=200, whole=True, tokens=end.tokens)
        case How.REFUSED:
            assert end.refused is not None
            said = wire_format.ended(program.pools[provider].api, end.refused)
            return ClientReply(
                status=said.status,
                retry_after_ns=said.retry_after_ns,
                why=f"{said.status} {end.refused.kind}",
            )
        case How.UNREACHABLE:
            return ClientReply(status=0, why="no connection")
        case How.LEFT:
            return ClientReply(
                status=0, timed_out=True, broken=end.begun, tokens=end.tokens, why="no byte for too long"
            )
        case _:
            why = "the stream broke" if end.begun else "connection reset"
            return ClientReply(status=200 if end.begun else 0, broken=end.begun, tokens=end.tokens, why=why)
