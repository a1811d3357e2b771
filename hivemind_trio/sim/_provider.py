"""How an LLM provider behaves under load, as a machine that is told the time."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final, TypeAlias, final

import attrs

from ._bucket import MINUTE_NS, Bucket, Dimension, Reading
from ._service import Ask, Fault, Service, break_after, fault, service
from ._traits import Traits


@final
class Trouble(Enum):
    """What a request may meet instead of a whole answer."""

    OUTAGE = "503"
    OVERLOAD = "529"
    RESET = "reset"
    BAD_GATEWAY = "502"
    REQUESTS = "429 requests"
    INPUT = "429 input tokens"
    OUTPUT = "429 output tokens"
    TOO_LARGE = "413"
    BREAK = "reset mid-stream"


OF_DIMENSION: Final = {
    Dimension.REQUESTS: Trouble.REQUESTS,
    Dimension.INPUT: Trouble.INPUT,
    Dimension.OUTPUT: Trouble.OUTPUT,
}


@final
@attrs.frozen(kw_only=True)
class Accepted:
    """The request holds a slot until `Provider.leave`."""

    number: int
    """Of the attempt, from 1."""
    service: Service
    breaks_after: int | None = None
    """The connection is reset after so many streamed events; None: it is not."""


@final
@attrs.frozen(kw_only=True)
class Refused:
    """The request is answered at once; it holds nothing and costs no tokens."""

    trouble: Trouble
    status: int
    kind: str
    """The error's `type` in Anthropic's words."""
    message: str
    dimension: Dimension | None = None
    """Of a 429."""
    retry_after_ns: int | None = None
    """Until then it would be refused again."""


@final
@attrs.frozen(kw_only=True)
class Dropped:
    """The connection is reset without an answer. Nothing was done and nothing is held, which the client cannot know."""


Answer: TypeAlias = Accepted | Refused | Dropped


@attrs.define
class _Generating:
    since_ns: int
    tokens_in: int
    tokens_out: int = 0


@attrs.define(eq=False, kw_only=True)
class Provider:
    """One provider with its counters.

    The order of the tests in `arrive` is that of the paper's mock: the cap first, then what fails at random, both of
    which cost nothing, then what a window counts. An outage comes before all of them.
    """

    traits: Traits
    seed: int = 0

    attempts: int = attrs.field(init=False, default=0)
    met: Counter[Trouble] = attrs.field(init=False, factory=Counter)
    inflight: int = attrs.field(init=False, default=0)
    inflight_max: int = attrs.field(init=False, default=0)
    """The most at once that ever asked, an attempt that was refused for it included."""
    tokens_in: int = attrs.field(init=False, default=0)
    tokens_out: int = attrs.field(init=False, default=0)
    tokens_lost: int = attrs.field(init=False, default=0)
    """Of those, input and output, what went into answers that nobody has whole."""
    busy_ns: int = attrs.field(init=False, default=0)
    """Slot time used so far: the sum over answers of the time from `arrive` to `leave`."""
    _buckets: dict[Dimension, Bucket] = attrs.field(init=False)
    _generating: dict[int, _Generating] = attrs.field(init=False, factory=dict)
    """Attempt number -> what it has taken so far; the ones in flight."""
    _tried: Counter[str] = attrs.field(init=False, factory=Counter)
    """Key -> how often it was asked for and got as far as what fails at random."""
    _answered: Counter[str] = attrs.field(init=False, factory=Counter)
    """Key -> how often it was accepted."""

    def __attrs_post_init__(self) -> None:
        self._buckets = {dimension: Bucket(quota) for dimension, quota in self.traits.quotas.items()}

    @property
    def refused(self) -> int:
        """Requests that were told so."""
        return self.met.total() - self.met[Trouble.RESET] - self.met[Trouble.BREAK]

    def arrive(self, ask: Ask, now_ns: int) -> Answer:
        """Take a request, or refuse or drop it.

        Args:
            now_ns: Since the provider was first asked; never less than before.
        """
        self.attempts += 1
        self.inflight_max = max(self.inflight_max, self.inflight + 1)
        answer = self._answer(ask, now_ns)
        match answer:
            case Refused():
                self.met[answer.trouble] += 1
            case Dropped():
                self.met[Trouble.RESET] += 1
            case Accepted():
                self.inflight += 1
                self.tokens_in += ask.tokens_in
                self._generating[answer.number] = _Generating(now_ns, ask.tokens_in)
        return answer

    def generate(self, accepted: Accepted, tokens: int, now_ns: int) -> None:
        """So many tokens more of an answer are there, hence billed, whether or not the client still wants them."""
        self._generating[accepted.number].tokens_out += tokens
        self.tokens_out += tokens
        if Dimension.OUTPUT in self._buckets:
            self._buckets[Dimension.OUTPUT].take(tokens, now_ns)

    def leave(self, accepted: Accepted, now_ns: int, *, whole: bool = True) -> None:
        """The answer has ended; its slot is free.

        Args:
            whole: False: the client went away before the last of it.
        """
        generated = self._generating.pop(accepted.number)
        self.busy_ns += now_ns - generated.since_ns
        self.inflight -= 1
        if not whole:
            self.tokens_lost += generated.tokens_in + generated.tokens_out

    def break_off(self, accepted: Accepted, now_ns: int) -> None:
        """The connection breaks where `accepted` says; its slot is free."""
        assert accepted.breaks_after is not None
        self.met[Trouble.BREAK] += 1
        self.leave(accepted, now_ns, whole=False)

    def readings(self, now_ns: int) -> dict[Dimension, Reading]:
        """What headers say of every limited dimension."""
        return {dimension: bucket.reading(now_ns) for dimension, bucket in self._buckets.items()}

    def _answer(self, ask: Ask, now_ns: int) -> Answer:
        if any(from_ns <= now_ns < to_ns for from_ns, to_ns in self.traits.outages):
            return Refused(trouble=Trouble.OUTAGE, status=503, kind="api_error", message="Service Unavailable")
        if self.traits.concurrency is not None and self.inflight >= self.traits.concurrency:
            return Refused(trouble=Trouble.OVERLOAD, status=529, kind="overloaded_error", message="Overloaded")
        self._tried[ask.key] += 1
        failing = fault(self.traits, self.seed, ask, self._tried[ask.key])
        if failing is Fault.RESET:
            return Dropped()
        if failing is Fault.BAD_GATEWAY:
            return Refused(trouble=Trouble.BAD_GATEWAY, status=502, kind="api_error", message="Bad Gateway")
        refused = self._over(ask, now_ns)
        if refused is not None:
            return refused
        self._answered[ask.key] += 1
        served = service(self.traits, self.seed, ask)
        breaks = break_after(self.traits, self.seed, ask, self._answered[ask.key], len(served.events))
        return Accepted(number=self.attempts, service=served, breaks_after=breaks)

    def _over(self, ask: Ask, now_ns: int) -> Refused | None:
        """Take from all buckets, or say which of them has too little; then none is charged."""
        # Output is charged as it is generated; to be let in, something must be left.
        costs = {Dimension.REQUESTS: 1, Dimension.INPUT: ask.tokens_in, Dimension.OUTPUT: 1}
        short: tuple[int, Dimension] | None = None
        for dimension, bucket in self._buckets.items():
            wait_ns = bucket.wait_ns(costs[dimension], now_ns)
            if wait_ns is None:
                message = f"{costs[dimension]} {dimension.value} are more than fit into one window"
                return Refused(trouble=Trouble.TOO_LARGE, status=413, kind="request_too_large", message=message)
            if wait_ns and (short is None or wait_ns > short[0]):
                short = wait_ns, dimension
        if short is not None:
            return self._limited(*short)
        for dimension in (Dimension.REQUESTS, Dimension.INPUT):
            if dimension in self._buckets:
                self._buckets[dimension].take(costs[dimension], now_ns)
        return None

    def _limited(self, wait_ns: int, dimension: Dimension) -> Refused:
        quota = self._buckets[dimension].quota
        window = "minute" if quota.window_ns == MINUTE_NS else f"{quota.window_ns / 1e9:g} s"
        return Refused(
            trouble=OF_DIMENSION[dimension],
            status=429,
            kind="rate_limit_error",
            message=f"This request would exceed the rate limit of {quota.limit:,} {dimension.value} per {window}",
            dimension=dimension,
            retry_after_ns=wait_ns,
        )
