"""How an LLM provider behaves under load, as a machine that is told the time.

What a request costs is drawn from the seed and from what the request says, not from the order of arrival: so a fleet
sent straight at a provider and the same fleet sent through a proxy ask for the same work, and a lower bound on the time
that takes can be computed before either runs.
"""

from __future__ import annotations

from random import Random
from typing import Final, TypeAlias, final

import attrs

MS: Final = 1_000_000


@final
@attrs.frozen(kw_only=True)
class Traits:
    """What kind of provider it is. The defaults are replay-11's of the HiveMind paper: 120 ± 60 ms, 150 ± 50 tokens."""

    concurrency: int | None = None
    """Requests at once; one more is refused with 529. None: no cap."""
    latency_mean_ns: int = 120 * MS
    latency_sigma_ns: int = 60 * MS
    latency_min_ns: int = 10 * MS
    """Latency is from the request to the last byte, drawn from a normal distribution cut off here."""
    tokens_out_mean: int = 150
    tokens_out_sigma: int = 50
    tokens_out_min: int = 10
    first_byte: float = 0.25
    """The part of the latency after which a streamed answer begins."""
    tokens_per_event: int = 10
    """How many tokens one streamed event carries."""


@final
@attrs.frozen(kw_only=True)
class Ask:
    """What a request asks for."""

    key: str
    """Decides, with the seed, how long the answer takes and how long it is. The same key asks for the same work."""
    tokens_in: int
    tokens_max_out: int


@final
@attrs.frozen(kw_only=True)
class Service:
    """What one answer takes."""

    latency_ns: int
    """From the request to the last byte."""
    first_byte_ns: int
    """From the request to the first byte of a streamed answer."""
    tokens_out: int
    events: tuple[int, ...]
    """Tokens per streamed event; they add up to `tokens_out` and are spread evenly over the rest of the latency."""

    @property
    def gap_ns(self) -> int:
        """Between two streamed events."""
        return (self.latency_ns - self.first_byte_ns) // len(self.events)


@final
@attrs.frozen(kw_only=True)
class Accepted:
    """The request holds a slot until `Provider.leave`."""

    number: int
    """Of the attempt, from 1."""
    service: Service


@final
@attrs.frozen(kw_only=True)
class Refused:
    """The request holds nothing and costs no tokens."""

    status: int
    kind: str
    """The error's `type` in Anthropic's words."""
    message: str


Answer: TypeAlias = Accepted | Refused


@attrs.define(eq=False, kw_only=True)
class Provider:
    """One provider with its counters.

    The order of the tests in `arrive` is that of the paper's mock: the cap first, which costs nothing; what fails at
    random and what a window counts come after it.
    """

    traits: Traits
    seed: int = 0

    attempts: int = attrs.field(init=False, default=0)
    refused: int = attrs.field(init=False, default=0)
    inflight: int = attrs.field(init=False, default=0)
    inflight_max: int = attrs.field(init=False, default=0)
    """The most at once that ever asked, an attempt that was refused for it included."""
    tokens_in: int = attrs.field(init=False, default=0)
    tokens_out: int = attrs.field(init=False, default=0)
    busy_ns: int = attrs.field(init=False, default=0)
    """Slot time used so far: the sum over answers of the time from `arrive` to `leave`."""
    _since_ns: dict[int, int] = attrs.field(init=False, factory=dict)
    """Attempt number -> when it arrived; the ones in flight."""

    def arrive(self, ask: Ask, now_ns: int) -> Answer:
        """Take or refuse a request."""
        self.attempts += 1
        self.inflight_max = max(self.inflight_max, self.inflight + 1)
        if self.traits.concurrency is not None and self.inflight >= self.traits.concurrency:
            self.refused += 1
            return Refused(status=529, kind="overloaded_error", message="Overloaded")
        self.inflight += 1
        self.tokens_in += ask.tokens_in
        self._since_ns[self.attempts] = now_ns
        return Accepted(number=self.attempts, service=service(self.traits, self.seed, ask))

    def leave(self, accepted: Accepted, now_ns: int, *, tokens_out: int) -> None:
        """The answer has ended, whole or not; its slot is free.

        Args:
            tokens_out: Generated, hence billed, whether or not the client still wanted them.
        """
        self.busy_ns += now_ns - self._since_ns.pop(accepted.number)
        self.inflight -= 1
        self.tokens_out += tokens_out


def service(traits: Traits, seed: int, ask: Ask) -> Service:
    """Draw what an answer takes: a function of its arguments only."""
    # A string seeds Random by its SHA-512, so keys that differ in one digit draw unrelated numbers.
    chance = Random(f"{seed}/{ask.key}")  # noqa: S311 - a simulation wants to be repeatable, not secret
    latency_ns = max(traits.latency_min_ns, round(chance.gauss(traits.latency_mean_ns, traits.latency_sigma_ns)))
    drawn = max(traits.tokens_out_min, round(chance.gauss(traits.tokens_out_mean, traits.tokens_out_sigma)))
    tokens_out = max(1, min(drawn, ask.tokens_max_out))
    whole, rest = divmod(tokens_out, traits.tokens_per_event)
    events = (traits.tokens_per_event,) * whole + ((rest,) if rest else ())
    return Service(
        latency_ns=latency_ns,
        first_byte_ns=int(latency_ns * traits.first_byte),
        tokens_out=tokens_out,
        events=events,
    )
