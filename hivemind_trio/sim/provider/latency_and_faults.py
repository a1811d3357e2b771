"""Requests and random draws for them: functions of the seed and of the request.

Not of the order of arrival: so a fleet sent straight at a provider and the same fleet sent through a proxy ask for the
same work, and a lower bound on the time that takes can be computed before either runs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from random import Random
from typing import Final, assert_never, final

import attrs

from .profile import Shape, Traits, Weather

TOKENS_OUT_MOST: Final = 1_000_000
"""Longest recorded answer that is believed, in tokens."""


@final
@attrs.frozen(kw_only=True)
class Taken:
    """Measurements of a recorded answer; None: unknown."""

    latency_ns: int | None = None
    first_byte_ns: int | None = None
    tokens_out: int | None = None
    tokens_cached: int = 0
    """Input tokens read from the cache."""


@final
@attrs.frozen(kw_only=True)
class Ask:
    """Contents of a request."""

    key: str
    """Decides, with the seed, how long the answer takes and how long it is. The same key asks for the same work."""
    tokens_in: int
    tokens_max_out: int
    tokens_out: int | None = None
    """Mean length of the answer; None: the provider's usual one."""
    stream: bool = False
    conversation: str = ""
    """Conversation whose prompt grows with every call; empty: nothing can be cached."""
    prefix: str = ""
    """Beginning of the prompt that others share; empty: none."""
    prefix_tokens: int = 0
    account: str = ""
    """Account whose plan it counts against."""
    taken: Taken | None = None
    """None: it is drawn."""


@final
@attrs.frozen(kw_only=True)
class Service:
    """Latency and length of one answer."""

    latency_ns: int
    """From the request to the last byte."""
    first_byte_ns: int
    """From the request to the first byte of a streamed answer."""
    tokens_out: int
    tokens_per_event: int
    """Tokens of each streamed event, as far as they go."""

    @property
    def events(self) -> tuple[int, ...]:
        """Tokens per streamed event; they add up to `tokens_out` and are spread evenly over the rest of the latency."""
        whole, rest = divmod(self.tokens_out, self.tokens_per_event)
        return (self.tokens_per_event,) * whole + ((rest,) if rest else ())

    @property
    def events_count(self) -> int:
        """Number of events, at least one."""
        return -(-self.tokens_out // self.tokens_per_event)

    @property
    def gap_ns(self) -> int:
        """Between two streamed events."""
        return (self.latency_ns - self.first_byte_ns) // -(-self.tokens_out // self.tokens_per_event)

    def tokens_by(self, streamed_ns: int) -> int:
        """So much of it is there so long after the first byte, if it is streamed."""
        if streamed_ns < 0:
            return 0
        tokens = streamed_ns // max(1, self.gap_ns) * self.tokens_per_event
        return tokens if tokens < self.tokens_out else self.tokens_out

    def delayed(self, first_ns: int, rest_ns: int) -> Service:
        """Return the same, but so much more until the first byte, and so much more from there on."""
        return Service(
            latency_ns=self.latency_ns + first_ns + rest_ns,
            first_byte_ns=self.first_byte_ns + first_ns,
            tokens_out=self.tokens_out,
            tokens_per_event=self.tokens_per_event,
        )


def service(traits: Traits, seed: int, ask: Ask) -> Service:
    """Draw what an answer takes, as far as it is not known: a function of its arguments only."""
    if ask.taken is not None:
        return _as_taken(traits, seed, ask, ask.taken)
    # A string seeds Random by its SHA-512, so keys that differ in one digit draw unrelated numbers.
    chance = Random(f"{seed}/{ask.key}")  # noqa: S311 - a simulation wants to be repeatable, not secret
    drawn = draw(traits.latency_shape, traits.latency_mean_ns, traits.latency_sigma_ns, chance)
    latency_ns = max(traits.latency_min_ns, round(drawn))
    drawn = draw(traits.tokens_out_shape, traits.tokens_out_mean, traits.tokens_out_sigma, chance)
    if ask.tokens_out is not None:
        drawn *= ask.tokens_out / traits.tokens_out_mean
    tokens_out = max(1, min(max(traits.tokens_out_min, round(drawn)), ask.tokens_max_out))
    if traits.spikes and chance.random() < traits.spikes:
        latency_ns = round(latency_ns * traits.spike_factor)
    reading_ns = traits.in_token_ns * ask.tokens_in
    first_byte_ns = int(latency_ns * traits.first_byte) + reading_ns
    return Service(
        latency_ns=latency_ns + reading_ns + traits.out_token_ns * tokens_out,
        first_byte_ns=first_byte_ns,
        tokens_out=tokens_out,
        tokens_per_event=traits.tokens_per_event,
    )


def _as_taken(traits: Traits, seed: int, ask: Ask, taken: Taken) -> Service:
    """As it was, and as it would be drawn where that is not known or the provider is said to be otherwise."""
    drawn = service(traits, seed, attrs.evolve(ask, taken=None))
    tokens_out = drawn.tokens_out
    if taken.tokens_out is not None:
        tokens_out = max(1, min(taken.tokens_out, TOKENS_OUT_MOST))
    latency_ns, first_byte_ns = drawn.latency_ns, drawn.first_byte_ns
    if taken.latency_ns is not None and not traits.latency_told:
        latency_ns = taken.latency_ns
        first_byte_ns = int(latency_ns * traits.first_byte) if taken.first_byte_ns is None else taken.first_byte_ns
    elif tokens_out != drawn.tokens_out:
        latency_ns = max(first_byte_ns, latency_ns + traits.out_token_ns * (tokens_out - drawn.tokens_out))
    return Service(
        latency_ns=latency_ns,
        first_byte_ns=min(first_byte_ns, latency_ns),
        tokens_out=tokens_out,
        tokens_per_event=traits.tokens_per_event,
    )


service_once = lru_cache(maxsize=1 << 15)(service)
"""`service`, remembered: a lower bound and both ways of a run ask for the same answers. For keys that are names; a
provider whose keys are whole prompts draws anew."""


def draw(shape: Shape, mean: float, spread: float, chance: Random) -> float:
    """One number of that mean and standard deviation; for a uniform one, `spread` is half of its width."""
    match shape:
        case Shape.NORMAL:
            return chance.gauss(mean, spread)
        case Shape.LOGNORMAL:
            variance = math.log1p((spread / mean) ** 2)
            return chance.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))
        case Shape.UNIFORM:
            return chance.uniform(mean - spread, mean + spread)
        case _:
            assert_never(shape)


def fault(traits: Traits, seed: int, ask: Ask, time: int) -> Weather | None:
    """Draw what goes wrong before there is an answer.

    Args:
        time: The how-manieth request with this key it is that gets so far, from 1: a retry has a chance of its own.
    """
    drawn = Random(f"{seed}/fault {time}/{ask.key}").random()  # noqa: S311 - as above
    below = 0.0
    for weather, share in traits.failing:
        below += share
        if drawn < below:
            return weather
    return None


def break_after(traits: Traits, seed: int, ask: Ask, time: int, events: int) -> int | None:
    """Draw how many of `events` streamed events get out before the connection breaks; None: all of them.

    Args:
        time: The how-manieth answer to this key it is, from 1.
    """
    if not ask.stream or not traits.breaks:
        return None
    chance = Random(f"{seed}/break {time}/{ask.key}")  # noqa: S311 - as above
    return chance.randrange(events) if chance.random() < traits.breaks else None


def stall_after(traits: Traits, seed: int, ask: Ask, time: int, events: int) -> int | None:
    """Draw how many of `events` streamed events get out before it falls silent; None: all of them."""
    if not ask.stream or not traits.stalls:
        return None
    chance = Random(f"{seed}/stall {time}/{ask.key}")  # noqa: S311 - as above
    return chance.randrange(events) if chance.random() < traits.stalls else None


def hang_ns(traits: Traits, seed: int, ask: Ask, time: int, now_ns: int) -> int:
    """Draw how much later the answer begins; 0: it does not hang.

    Args:
        time: The how-manieth answer to this key it is, from 1.
        now_ns: When it is asked for: a `hang_wave` goes by that.
    """
    share, wave = traits.hangs, traits.hang_wave
    if wave is not None:
        share += wave.amplitude * math.sin(2 * math.pi * now_ns / wave.period_ns)
    if share <= 0:
        return 0
    chance = Random(f"{seed}/hang {time}/{ask.key}")  # noqa: S311 - as above
    return chance.randint(*traits.hang_ns) if chance.random() < share else 0


def struck(traits: Traits, seed: int, ask: Ask, number: int, share: float) -> bool:
    """Draw whether a storm that hits a share of all requests hits the one of that number."""
    return share >= 1 or Random(f"{seed}/storm {number}/{ask.key}").random() < share  # noqa: S311 - as above
