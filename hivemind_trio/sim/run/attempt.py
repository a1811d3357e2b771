"""One exchange with a simulated provider, from the request to its end, whoever sent it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final, final

import attrs

from hivemind_trio.model import Usage
from hivemind_trio.policy import Timeouts
from hivemind_trio.sim.provider.latency_and_faults import Ask
from hivemind_trio.sim.provider.profile import MS
from hivemind_trio.sim.provider.provider import Accepted, Dropped, Provider, Refused, Trouble

from .event_queue import Agenda
from .overhead_model import Road

ROUND_TRIP_NS: Final = MS
"""Time to be refused: a round trip on a short wire. So nobody can fail endlessly in one instant."""

SLICES: Final = 8
"""In which a streamed answer is generated, where output is limited: as fine as the figures are."""


@final
class How(Enum):
    """End of an attempt."""

    WHOLE = auto()
    REFUSED = auto()
    UNREACHABLE = auto()
    RESET = auto()
    FIRST_BYTE = auto()
    IDLE = auto()
    TOTAL = auto()
    LEFT = auto()
    """The client has left."""


@final
@attrs.frozen(kw_only=True)
class End:
    """Result of an attempt."""

    how: How
    begun: bool = False
    """A byte of the answer had come."""
    waited_ns: int = 0
    """Until that byte, or for it."""
    silence_ns: int | None = None
    """The longest between two pieces of a stream, or what was waited for the next; None: it was none."""
    refused: Refused | None = None
    usage: Usage | None = None
    tokens: int = 0
    """Spent on it."""


def _nothing(_: End) -> None:
    """Ignore the end of an attempt: its caller has gone."""


@final
@attrs.define(eq=False)
class SimulatedAttempt:
    """An exchange under way. `over` is called once, in virtual time, with what became of it.

    `headed` is called when the head of an answer is there that is no error.

    All of it is known when the request arrives, so it takes one entry in the agenda, and one more for each slice where
    it matters when tokens are generated. None of these is later than its end.
    """

    agenda: Agenda
    provider: Provider
    ask: Ask
    timeouts: Timeouts | None
    """The proxy's; None: there is none in between."""
    leaves_ns: int
    """When the client will have had no byte for too long: a time, not a span."""
    silence_ns: int
    """Longest silence that it bears once an answer has begun."""
    over: Callable[[End], None]
    headed: Callable[[], None] | None = None
    """None: nobody listens."""
    road: Road | None = None
    """To its provider and back; None: it is no way at all."""
    _began_ns: int = attrs.field(init=False, default=0)
    _first_ns: int = attrs.field(init=False, default=0)
    _accepted: Accepted | None = attrs.field(init=False, default=None)
    _dropped: bool = attrs.field(init=False, default=False)

    def begin(self) -> None:
        """Send the request now."""
        self._began_ns = self.agenda.now_ns
        if self.road is None:
            self._arrive()
            return
        self.over = partial(self.road.back, self.over)
        self.road.there(self._arrive)

    def generated(self) -> int:
        """Return the tokens of a stream that have come by now."""
        if self._accepted is None or not self.ask.stream:
            return 0
        return self._accepted.service.tokens_by(self.agenda.now_ns - self._first_ns)

    def drop(self) -> None:
        """Break the connection: its side has ended. Nothing is told of it any more."""
        self._dropped, self.headed = True, None
        self.over = _nothing
        if self._accepted is not None:
            self.provider.leave(self._accepted, self.agenda.now_ns, whole=False)

    def _arrive(self) -> None:
        if self._dropped:
            return
        ask, now_ns = self.ask, self.agenda.now_ns
        answer = self.provider.arrive(ask, now_ns)
        match answer:
            case Accepted():
                self._accepted = answer
                at_ns, how = self._foresee(answer, now_ns)
                self.agenda.at(at_ns, self._end, answer, how)
                if ask.stream:
                    self._stream(answer, at_ns)
            case Refused():
                self.agenda.at(now_ns + ROUND_TRIP_NS, self._over, End(how=How.REFUSED, refused=answer))
            case Dropped(trouble=trouble):
                how = How.UNREACHABLE if trouble is Trouble.UNREACHABLE else How.RESET
                self.agenda.at(now_ns + ROUND_TRIP_NS, self._over, End(how=how))

    def _over(self, end: End) -> None:
        self.over(end)

    def _head(self) -> None:
        if self.headed is not None:
            self.headed()

    def _foresee(self, accepted: Accepted, now_ns: int) -> tuple[int, How]:
        """When it will end, and how: whatever comes first."""
        served, timeouts = accepted.service, self.timeouts
        first_ns = self._first_ns = now_ns + (served.first_byte_ns if self.ask.stream else served.latency_ns)
        at_ns, how = now_ns + served.latency_ns, How.WHOLE
        if accepted.breaks_after is not None:
            at_ns, how = first_ns + served.gap_ns * accepted.breaks_after, How.RESET
        elif accepted.stalls_after is not None:
            idle = timeouts is not None and timeouts.idle_ns <= self.silence_ns
            patient_ns = timeouts.idle_ns if timeouts is not None and idle else self.silence_ns
            at_ns = first_ns + served.gap_ns * accepted.stalls_after + patient_ns
            how = How.IDLE if idle else How.LEFT
        first_ns = min(first_ns, at_ns)
        if timeouts is not None and now_ns + timeouts.first_byte_ns < first_ns:
            first_ns = at_ns = now_ns + timeouts.first_byte_ns
            how = How.FIRST_BYTE
        if self.leaves_ns < first_ns:
            at_ns, how = max(now_ns, self.leaves_ns), How.LEFT
        if timeouts is not None and now_ns + timeouts.total_ns < at_ns:
            at_ns, how = now_ns + timeouts.total_ns, How.TOTAL
        return at_ns, how

    def _stream(self, accepted: Accepted, end_ns: int) -> None:
        """Be there when the head is, and in the middle of it, if that matters to anybody."""
        at = self.agenda.at
        begins = self._first_ns < end_ns
        if self.provider.counts_output:
            span_ns = accepted.service.latency_ns - accepted.service.first_byte_ns
            for number in range(1, SLICES):
                at_ns = self._first_ns + span_ns * number // SLICES
                if at_ns < end_ns:
                    at(at_ns, self._generate, accepted)
        if begins and self.road is not None:
            self.road.streamed(self._first_ns, end_ns, accepted.service.events_count)
        if begins and self.headed is not None:
            at(self._first_ns, self._head)

    def _generate(self, accepted: Accepted) -> None:
        """Account for what is there by now."""
        if self._dropped:
            return
        served, now_ns = accepted.service, self.agenda.now_ns
        tokens = served.tokens_out
        if now_ns < self._began_ns + served.latency_ns:
            tokens = served.tokens_by(now_ns - self._first_ns)
        for silent in (accepted.breaks_after, accepted.stalls_after):
            if silent is not None:
                tokens = min(tokens, silent * served.tokens_per_event)
        if tokens != accepted.tokens_out:
            self.provider.generate(accepted, tokens - accepted.tokens_out, now_ns)

    def _end(self, accepted: Accepted, how: How) -> None:
        if self._dropped:
            return
        self._accepted = None
        end = self._finish(accepted, how)
        if (
            how is How.WHOLE
            and self.headed is not None
            and not (self.ask.stream and self._first_ns < self.agenda.now_ns)
        ):
            self.headed()
        self.over(end)

    def _finish(self, accepted: Accepted, how: How) -> End:
        ask, provider, now_ns = self.ask, self.provider, self.agenda.now_ns
        whole = how is How.WHOLE
        if whole:
            provider.generate(accepted, accepted.service.tokens_out - accepted.tokens_out, now_ns)
        elif ask.stream:
            self._generate(accepted)
        if how is How.RESET:
            provider.break_off(accepted, now_ns)
        else:
            provider.leave(accepted, now_ns, whole=whole)
        # The proxy holds a stream until its first content event, so what breaks before it has not begun.
        is_held = self.timeouts is not None and how is How.RESET and not accepted.breaks_after
        begun = whole or (ask.stream and now_ns >= self._first_ns and not is_held)
        cached = accepted.tokens_cached
        silence_ns = accepted.service.gap_ns if ask.stream and begun else None
        if how is How.IDLE:
            assert self.timeouts is not None
            silence_ns = self.timeouts.idle_ns
        return End(
            how=how,
            begun=begun,
            waited_ns=(now_ns if how is How.FIRST_BYTE else self._first_ns) - self._began_ns,
            silence_ns=silence_ns,
            usage=Usage(input=ask.tokens_in - cached, cache_read=cached, output=accepted.tokens_out, exact=whole),
            tokens=ask.tokens_in + accepted.tokens_out,
        )
