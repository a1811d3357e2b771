"""Profile of a simulated provider."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, final

import attrs

from .plan_windows import PlanLimit
from .token_bucket import Metered, Quota

MS: Final = 1_000_000
SECOND_NS: Final = 1_000 * MS


@final
class Shape(StrEnum):
    """Distribution of a quantity with mean and spread."""

    NORMAL = "normal"
    LOGNORMAL = "lognormal"
    UNIFORM = "uniform"
    """Between mean - spread and mean + spread."""


@final
class Weather(StrEnum):
    """Effect of a storm on the requests that it hits."""

    OUTAGE = "503"
    OVERLOAD = "529"
    BAD_GATEWAY = "502"
    LIMITED = "429"
    """A limit of the provider that no header tells of."""
    RESET = "reset"
    UNREACHABLE = "connect"
    """No connection."""


FAILING_STATUSES: Final = (429, 500, 502, 503, 504, 529)
"""Statuses with which a provider can fail."""


@final
@attrs.frozen
class NamedError:
    """An error by its type."""

    kind: str
    """Type that its body has, in every dialect."""
    status: int
    """One of `FAILING_STATUSES`."""


@final
@attrs.frozen(kw_only=True)
class Storm:
    """A time in which a share of all requests fails."""

    from_ns: int
    to_ns: int
    share: float
    weather: Weather | NamedError


@final
@attrs.frozen(kw_only=True)
class Neighbour:
    """Somebody else on the same key, who takes a share of every quota for a while."""

    from_ns: int
    to_ns: int
    share: float


@final
@attrs.frozen(kw_only=True)
class Acceleration:
    """A guard against sudden growth: in a second no more than `floor`, or `factor` times what has been usual of late.

    Anthropic has one and says of it to "ramp up gradually"; its figures are not public, these are guesses.
    """

    factor: float = 3.0
    over_ns: int = 45 * SECOND_NS
    """The time constant of what is usual."""
    floor: int = 2


@final
@attrs.frozen(kw_only=True)
class Wave:
    """A share that comes and goes as a sine: it is added to the share that is named beside it."""

    amplitude: float
    period_ns: int


@final
@attrs.frozen(kw_only=True, cache_hash=True)
class Traits:
    """Profile of a provider. The defaults are replay-11's of the HiveMind paper: 120 ± 60 ms, 150 ± 50 tokens.

    All times are since the provider was first asked. Unless told so it never fails.
    """

    latency_mean_ns: int = 120 * MS
    latency_sigma_ns: int = 60 * MS
    latency_min_ns: int = 10 * MS
    """Latency is from the request to the last byte, drawn from a distribution cut off here."""
    latency_shape: Shape = Shape.NORMAL
    latency_told: bool = False
    """True if the latency holds for recorded answers too; otherwise those repeat their own."""
    in_token_ns: int = 0
    """Added for every token of the prompt, before the first byte."""
    out_token_ns: int = 0
    """Added for every token of the answer."""
    slowdown: float = 0.0
    """Each request that is in flight already makes one that comes slower by this share of its latency."""
    spikes: float = 0.0
    """The share of requests that take `spike_factor` times as long: the same ones whenever they are asked."""
    spike_factor: float = 5.0
    tokens_out_mean: int = 150
    tokens_out_sigma: int = 50
    tokens_out_min: int = 10
    tokens_out_shape: Shape = Shape.NORMAL
    first_byte: float = 0.25
    """The part of the latency after which a streamed answer begins."""
    tokens_per_event: int = 10
    """Tokens of one streamed event."""

    concurrency: int | None = None
    """Requests at once; one more is refused with 529. None: no cap."""
    requests: Quota | None = None
    """Request limit; beyond it the answer is 429, as with the next three. None: unlimited."""
    input: Quota | None = None
    """Tokens of prompts, known when a request arrives."""
    output: Quota | None = None
    """Tokens as they are generated: a request is let in while anything is left, and may then take more than there
    was."""
    tokens: Quota | None = None
    """Limit of all tokens: the prompt's on arrival, the answer's as they are generated."""
    charges_most: bool = False
    """Output counts as what the request allows, when it arrives, for good: OpenAI's and Azure's way."""
    refusals_count: bool = False
    """A request that is refused for a quota counts against the requests all the same."""
    cache_ns: int = 0
    """Time for which a conversation's last prompt is cached; cached tokens are no input. 0: not at all."""
    neighbours: tuple[Neighbour, ...] = ()
    acceleration: Acceleration | None = None
    plan: tuple[PlanLimit, ...] = ()
    """Windows of the plan that each account has; empty: accounts have none."""
    plans: tuple[tuple[str, tuple[PlanLimit, ...]], ...] = ()
    """Accounts with a plan of their own."""
    tells: bool = True
    """The head of an answer says how the quotas and the plan stand, if its API has words for it."""
    says_retry_after_ns: int | None = None
    """Value of `retry-after` in every 429, true or not; None: the truth."""

    bad_gateways: float = 0.0
    """The share of requests that a gateway in front answers with 502."""
    resets: float = 0.0
    """The share of requests whose connection is reset before the answer."""
    overloads: float = 0.0
    """The share of requests that are refused with 529, whatever else is in flight."""
    unavailable: float = 0.0
    """The share of requests that are refused with 503."""
    unreachable: float = 0.0
    """The share of requests that get no connection."""
    breaks: float = 0.0
    """The share of streamed answers whose connection is reset between their first event and their last."""
    stalls: float = 0.0
    """The share of streamed answers that fall silent between their first event and their last."""
    hangs: float = 0.0
    """The share of requests whose answer begins later by what `hang_ns` says; another try has a chance of its own."""
    hang_ns: tuple[int, int] = (50 * SECOND_NS, 120 * SECOND_NS)
    """At least, and at most."""
    hang_wave: Wave | None = None
    outages: tuple[tuple[int, int], ...] = ()
    """From and to, in ns: whatever arrives in between is refused with 503."""
    storms: tuple[Storm, ...] = ()

    def __attrs_post_init__(self) -> None:
        before = [share for _, share in self.failing]
        shares = (*before, self.breaks, self.stalls, self.hangs, self.spikes)
        assert min(shares) >= 0, shares
        assert max(sum(before), self.breaks + self.stalls, self.hangs, self.spikes) <= 1, (
            f"shares of one whole: {shares}"
        )

    @property
    def failing(self) -> tuple[tuple[Weather, float], ...]:
        """Failures before there is an answer, with the share of requests that meet each."""
        return (
            (Weather.BAD_GATEWAY, self.bad_gateways),
            (Weather.RESET, self.resets),
            (Weather.OVERLOAD, self.overloads),
            (Weather.OUTAGE, self.unavailable),
            (Weather.UNREACHABLE, self.unreachable),
        )

    @property
    def quotas(self) -> dict[Metered, Quota]:
        """The dimensions that are limited."""
        by = {
            Metered.REQUESTS: self.requests,
            Metered.INPUT: self.input,
            Metered.OUTPUT: self.output,
            Metered.TOKENS: self.tokens,
        }
        return {dimension: quota for dimension, quota in by.items() if quota is not None}

    def limited_to(self, quotas: Mapping[Metered, Quota]) -> Traits:
        """Return the same with these quotas; a dimension that is not named keeps its own."""
        all_of_them = self.quotas | dict(quotas)
        return attrs.evolve(
            self,
            requests=all_of_them.get(Metered.REQUESTS),
            input=all_of_them.get(Metered.INPUT),
            output=all_of_them.get(Metered.OUTPUT),
            tokens=all_of_them.get(Metered.TOKENS),
        )
