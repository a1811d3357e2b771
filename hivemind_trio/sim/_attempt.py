"""One exchange with a simulated provider, from the request to its end, whoever sent it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final, final

import attrs

from hivemind_trio.model import Usage
from hivemind_trio.policy import Timeouts

from ._agenda import Agenda, Due
from ._provider import Accepted, Dropped, Provider, Refused, Trouble
from ._road import Road
from ._service import Ask
from ._traits import MS

ROUND_TRIP_NS: Final = MS
"""What it takes to be turned away: there and back over a short wire. So nobody can fail endlessly in one instant."""

SLICES: Final = 8
"""In which a streamed answer is generated, where output is limited: as fine as the figures are."""


@final
class How(Enum):
    """How an attempt ended."""

    WHOLE = auto()
    REFUSED = auto()
    UNREACHABLE = auto()
    RESET = auto()
    FIRST_BYTE = auto()
    IDLE = auto()
    TOTAL = auto()
    LEFT = auto()
    """Who asked had waited long enough."""


@final
@attrs.frozen(kw_only=True)
class End:
    """What became of an attempt."""

    how: How
    begun: bool = False
    """A byte of the answer had come."""
    waited_ns: int = 0
    """Until that byte, or for it."""
    silence_ns: int | None = None
    """The longest between two pieces of a stream, or what was waited for the next; None: it was none."""
    refused: Refused | None = None
    usage: Usage | None = None

    @property
    def tokens(self) -> int:
        """Spent on it."""
        return 0 if self.usage is None else self.usage.total


@final
@attrs.frozen(kw_only=True)
class Bounds:
    """How long whoever asks waits."""

    first_byte_ns: int | None = None
    idle_ns: int | None = None
    total_ns: int | None = None
    leaves_ns: int | None = None
    """When the client will have had no byte for too long: a time, not a span."""
    silence_ns: int | None = None
    """How long it bears silence once it has had one."""

    @classmethod
    def of(cls, timeouts: Timeouts, leaves_ns: int, silence_ns: int) -> Bounds:
        """The proxy's and the client's."""
        return cls(
            first_byte_ns=timeouts.first_byte_ns,
            idle_ns=timeouts.idle_ns,
            total_ns=timeouts.total_ns,
            leaves_ns=leaves_ns,
            silence_ns=silence_ns,
        )


@final
@attrs.define(eq=False)
class Attempt:
    """`over` is called once, in virtual time, with what became of it; not at all after `abandon`.

    `headed` is called when the head of an answer is there that is no error.

    All of it is known when the request arrives, so it takes one entry in the agenda, and one more for each slice where
    it matters when tokens are generated.
    """

    agenda: Agenda
    provider: Provider
    ask: Ask
    bounds: Bounds
    over: Callable[[End], None]
    headed: Callable[[], None] | None = None
    """None: nobody listens."""
    road: Road | None = None
    """To its provider and back; None: it is no way at all."""
    _began_ns: int = attrs.field(init=False, default=0)
    _first_ns: int = attrs.field(init=False, default=0)
    _accepted: Accepted | None = attrs.field(init=False, default=None)
    _due: Due = attrs.field(init=False)
    _slices: list[Due] = attrs.field(init=False, factory=list)
    _generated: int = attrs.field(init=False, default=0)
    """Tokens of output, or none of a plain answer that is not whole."""

    def begin(self) -> None:
        """Send the request now."""
        self._began_ns = self.agenda.now_ns
        if self.road is None:
            self._arrive()
            return
        self.over = partial(self.road.back, self.over)
        self.road.there(self._arrive)

    def _arrive(self) -> None:
        now_ns = self.agenda.now_ns
        answer = self.provider.arrive(self.ask, now_ns)
        match answer:
            case Refused():
                self._end_at(now_ns + ROUND_TRIP_NS, End(how=How.REFUSED, refused=answer))
            case Dropped(trouble=trouble):
                how = How.UNREACHABLE if trouble is Trouble.UNREACHABLE else How.RESET
                self._end_at(now_ns + ROUND_TRIP_NS, End(how=how))
            case Accepted():
                self._accepted = answer
                at_ns, how = self._foresee(answer, now_ns)
                self._due = self.agenda.at(at_ns, self._end, how)
                if self.ask.stream and self.provider.counts_output:
                    self._slice(answer, at_ns)
                if self.ask.stream and self.road is not None and self._first_ns < at_ns:
                    self.road.streamed(self._first_ns, at_ns, len(answer.service.events))
                if self.ask.stream and self.headed is not None and self._first_ns < at_ns:
                    self._slices.append(self.agenda.at(self._first_ns, self.headed))

    def abandon(self) -> End:
        """The client has gone; the provider stops generating."""
        self.agenda.forget(self._due)
        return self._finish(How.LEFT)

    def _end_at(self, at_ns: int, end: End) -> None:
        self._due = self.agenda.at(at_ns, self.over, end)

    def _foresee(self, accepted: Accepted, now_ns: int) -> tuple[int, How]:
        """When it will end, and how: whatever comes first."""
        served, bounds = accepted.service, self.bounds
        first_ns = self._first_ns = now_ns + (served.first_byte_ns if self.ask.stream else served.latency_ns)
        at_ns, how = now_ns + served.latency_ns, How.WHOLE
        if accepted.breaks_after is not None:
            at_ns, how = first_ns + served.gap_ns * accepted.breaks_after, How.RESET
        elif accepted.stalls_after is not None:
            silent_ns = first_ns + served.gap_ns * accepted.stalls_after
            patient_ns = min(_or_ever(bounds.idle_ns), _or_ever(bounds.silence_ns))
            at_ns, how = silent_ns + patient_ns, How.IDLE if patient_ns == bounds.idle_ns else How.LEFT
        for bound_ns, end in (
            (None if bounds.first_byte_ns is None else now_ns + bounds.first_byte_ns, How.FIRST_BYTE),
            (bounds.leaves_ns, How.LEFT),
        ):
            if bound_ns is not None and bound_ns < min(first_ns, at_ns):
                at_ns, how = max(now_ns, bound_ns), end
        if bounds.total_ns is not None and now_ns + bounds.total_ns < at_ns:
            at_ns, how = now_ns + bounds.total_ns, How.TOTAL
        return at_ns, how

    def _slice(self, accepted: Accepted, end_ns: int) -> None:
        span_ns = accepted.service.latency_ns - accepted.service.first_byte_ns
        for number in range(1, SLICES):
            at_ns = self._first_ns + span_ns * number // SLICES
            if at_ns < end_ns:
                self._slices.append(self.agenda.at(at_ns, self._generate, accepted))

    def _generate(self, accepted: Accepted) -> None:
        """Account for what is there by now."""
        served, now_ns = accepted.service, self.agenda.now_ns
        events = len(served.events)
        if now_ns < self._began_ns + served.latency_ns:
            gap_ns = max(1, served.gap_ns)
            events = min(events, (now_ns - self._first_ns) // gap_ns) if now_ns >= self._first_ns else 0
        for silent in (accepted.breaks_after, accepted.stalls_after):
            events = events if silent is None else min(events, silent)
        tokens = sum(served.events[:events]) - self._generated
        if tokens:
            self.provider.generate(accepted, tokens, now_ns)
            self._generated += tokens

    def _end(self, how: How) -> None:
        end = self._finish(how)
        if (
            how is How.WHOLE
            and self.headed is not None
            and not (self.ask.stream and self._first_ns < self.agenda.now_ns)
        ):
            self.headed()
        self.over(end)

    def _finish(self, how: How) -> End:
        accepted, now_ns = self._accepted, self.agenda.now_ns
        if accepted is None:
            return End(how=how)
        for entry in self._slices:
            self.agenda.forget(entry)
        if how is How.WHOLE:
            self.provider.generate(accepted, accepted.service.tokens_out - self._generated, now_ns)
            self._generated = accepted.service.tokens_out
        elif self.ask.stream:
            self._generate(accepted)
        if how is How.RESET:
            self.provider.break_off(accepted, now_ns)
        else:
            self.provider.leave(accepted, now_ns, whole=how is How.WHOLE)
        begun = how is How.WHOLE or (self.ask.stream and now_ns >= self._first_ns)
        cached = accepted.tokens_cached
        usage = Usage(
            input=self.ask.tokens_in - cached, cache_read=cached, output=self._generated, exact=how is How.WHOLE
        )
        waited_ns = (now_ns if how is How.FIRST_BYTE else self._first_ns) - self._began_ns
        silence_ns = None
        if self.ask.stream and begun:
            silence_ns = self.bounds.idle_ns if how is How.IDLE else accepted.service.gap_ns
        return End(how=how, begun=begun, waited_ns=waited_ns, silence_ns=silence_ns, usage=usage)


def _or_ever(span_ns: int | None) -> int:
    """A time-out that is none, in comparison: ten days."""
    return 864_000 * 1_000 * MS if span_ns is None else span_ns
