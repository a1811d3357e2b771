"""What a request asks for, and what is drawn for it: functions of the seed and of what the request says.

Not of the order of arrival: so a fleet sent straight at a provider and the same fleet sent through a proxy ask for the
same work, and a lower bound on the time that takes can be computed before either runs.
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import final

import attrs

from ._traits import Traits


@final
@attrs.frozen(kw_only=True)
class Ask:
    """What a request asks for."""

    key: str
    """Decides, with the seed, how long the answer takes and how long it is. The same key asks for the same work."""
    tokens_in: int
    tokens_max_out: int
    stream: bool = False


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
class Fault(Enum):
    """What goes wrong at random before there is an answer."""

    BAD_GATEWAY = "502"
    RESET = "reset"


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


def fault(traits: Traits, seed: int, ask: Ask, time: int) -> Fault | None:
    """Draw what goes wrong before there is an answer.

    Args:
        time: The how-manieth request with this key it is that gets so far, from 1: a retry has a chance of its own.
    """
    drawn = Random(f"{seed}/fault {time}/{ask.key}").random()  # noqa: S311 - as above
    if drawn < traits.bad_gateways:
        return Fault.BAD_GATEWAY
    return Fault.RESET if drawn < traits.bad_gateways + traits.resets else None


def break_after(traits: Traits, seed: int, ask: Ask, time: int, events: int) -> int | None:
    """Draw how many of `events` streamed events get out before the connection breaks; None: all of them.

    Args:
        time: The how-manieth answer to this key it is, from 1.
    """
    chance = Random(f"{seed}/break {time}/{ask.key}")  # noqa: S311 - as above
    if not ask.stream or chance.random() >= traits.breaks:
        return None
    return chance.randrange(events)
