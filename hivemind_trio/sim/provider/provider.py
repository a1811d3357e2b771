"""Provider under load, as a state machine that is told the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias, final

import attrs

from hivemind_trio.model import PlanReading

from .background_load import Guard, Neighbours
from .latency_and_faults import Ask, Service, break_after, fault, hang_ns, service, stall_after, struck
from .plan_windows import CACHED_AS, SimulatedPlan
from .profile import FAILING_STATUSES, SECOND_NS, NamedError, Traits, Weather
from .token_bucket import MINUTE_NS, Metered, Reading
from .windows import WindowMeter, meter


@final
class Trouble(StrEnum):
    """Failures of a request."""

    OUTAGE = "503"
    OVERLOAD = "529"
    RESET = "reset"
    BAD_GATEWAY = "502"
    REQUESTS = "429 requests"
    INPUT = "429 input tokens"
    OUTPUT = "429 output tokens"
    TOKENS = "429 tokens"
    ACCELERATION = "429 acceleration"
    PLAN = "429 plan"
    LIMITED = "429"
    INTERNAL = "500"
    TIMEOUT = "504"
    TOO_LARGE = "413"
    BREAK = "reset mid-stream"
    UNREACHABLE = "no connection"
    STALL = "silence mid-stream"
    HANG = "silence at first"


OF_DIMENSION: Final = {
    Metered.REQUESTS: Trouble.REQUESTS,
    Metered.INPUT: Trouble.INPUT,
    Metered.OUTPUT: Trouble.OUTPUT,
    Metered.TOKENS: Trouble.TOKENS,
}

LIMITED: Final = (*OF_DIMENSION.values(), Trouble.ACCELERATION, Trouble.PLAN)
"""The 429s."""

_OF_WEATHER: Final = {
    Weather.OUTAGE: (Trouble.OUTAGE, 503, "api_error", "Service Unavailable"),
    Weather.OVERLOAD: (Trouble.OVERLOAD, 529, "overloaded_error", "Overloaded"),
    Weather.BAD_GATEWAY: (Trouble.BAD_GATEWAY, 502, "api_error", "Bad Gateway"),
    Weather.LIMITED: (Trouble.LIMITED, 429, "rate_limit_error", "This request would exceed your rate limit"),
}
_OF_STATUS: Final = {status: Trouble(f"{status}") for status in FAILING_STATUSES}

_NOT_TOLD: Final = (Trouble.RESET, Trouble.BREAK, Trouble.UNREACHABLE, Trouble.STALL, Trouble.HANG)


@final
@attrs.define(kw_only=True)
class Accepted:
    """The request holds a slot until `Provider.leave`."""

    number: int
    """Number of the attempt, from 1."""
    service: Service
    since_ns: int
    tokens_in: int
    breaks_after: int | None = None
    """The connection is reset after so many streamed events; None: it is not."""
    stalls_after: int | None = None
    """After so many streamed events nothing more is sent, and the connection stays; None: all of them are sent."""
    tokens_cached: int = 0
    """Input tokens read from the cache."""
    plan: SimulatedPlan | None = None
    """Plan that it counts against; None: none."""
    tokens_out: int = attrs.field(init=False, default=0)
    """Tokens generated so far."""


@final
@attrs.frozen(kw_only=True)
class Refused:
    """The request is answered at once; it holds nothing and costs no tokens."""

    trouble: Trouble
    status: int
    kind: str
    """The error's `type` in Anthropic's words."""
    message: str
    dimension: Metered | None = None
    """Dimension of a 429; None: not one of a quota."""
    retry_after_ns: int | None = None
    """Until then it would be refused again; or what the provider claims."""
    is_exact: bool = False
    """The error has `kind` as its type in every dialect."""

    @property
    def tells_limits(self) -> bool:
        """True if its head reports how the limit stands that was met."""
        return self.dimension is not None or self.trouble is Trouble.PLAN


@final
@attrs.frozen(kw_only=True)
class Dropped:
    """The connection is reset without an answer. Nothing was done and nothing is held, which the client cannot know."""

    trouble: Trouble = Trouble.RESET
    """Or `UNREACHABLE`: there was no connection in the first place."""


Answer: TypeAlias = Accepted | Refused | Dropped


@attrs.define(eq=False, kw_only=True)
class Provider:
    """One provider with its counters.

    The order of the tests in `arrive` is that of the paper's mock: the cap first, then what fails at random, both of
    which cost nothing, then what a window counts. An outage or a storm comes before all of them.
    """

    traits: Traits
    seed: int = 0
    service: Callable[[Traits, int, Ask], Service] = service
    """Draws what an answer takes."""

    attempts: int = attrs.field(init=False, default=0)
    met: Counter[Trouble] = attrs.field(init=False, factory=Counter)
    inflight: int = attrs.field(init=False, default=0)
    inflight_max: int = attrs.field(init=False, default=0)
    """The most at once that ever asked, an attempt that was refused for it included."""
    tokens_in: int = attrs.field(init=False, default=0)
    tokens_out: int = attrs.field(init=False, default=0)
    tokens_lost: int = attrs.field(init=False, default=0)
    """Tokens, input and output, of answers that nobody received whole."""
    busy_ns: int = attrs.field(init=False, default=0)
    """Slot time used so far: the sum over answers of the time from `arrive` to `leave`."""
    taken: Counter[Metered] = attrs.field(init=False, factory=Counter)
    """Amounts taken of limited dimensions."""
    plans: dict[str, SimulatedPlan] = attrs.field(init=False, factory=dict)
    """Account -> its plan, of accounts that have called."""
    counts_output: bool = attrs.field(init=False)
    """True if the time of generation matters."""
    tells: bool = attrs.field(init=False)
    """True if answers report the quotas."""
    has_plans: bool = attrs.field(init=False)
    """True if accounts have plans."""
    _meters: dict[Metered, WindowMeter] = attrs.field(init=False)
    _of_output: tuple[tuple[Metered, WindowMeter], ...] = attrs.field(init=False)
    """Those that count tokens as they are generated."""
    _fails: bool = attrs.field(init=False)
    """True if anything fails at random before an answer, and the next two likewise."""
    _falters: bool = attrs.field(init=False)
    _neighbours: Neighbours = attrs.field(init=False)
    _guard: Guard | None = attrs.field(init=False)
    _conversations: dict[str, tuple[int, int]] = attrs.field(init=False, factory=dict)
    """Conversation -> how much of its prompt is cached, and until when."""
    _prefixes: dict[str, tuple[int, int]] = attrs.field(init=False, factory=dict)
    """Shared beginnings of prompts -> start and end of their time in the cache."""
    _since_ns: int = attrs.field(init=False, default=0)
    """The sum of when those in flight were accepted."""
    _generating: dict[int, Accepted] = attrs.field(init=False, factory=dict)
    """Attempt number -> the ones in flight."""
    _tried: dict[str, int] = attrs.field(init=False, factory=dict)
    """Key -> how often it was asked for and got as far as what fails at random; counted where anything does."""
    _answered: dict[str, int] = attrs.field(init=False, factory=dict)
    """Key -> how often it was accepted; counted where an answer may come to grief."""

    def __attrs_post_init__(self) -> None:
        traits = self.traits
        self._meters = {dimension: meter(quota) for dimension, quota in traits.quotas.items()}
        own = (Metered.OUTPUT, Metered.TOKENS) if not traits.charges_most else ()
        self._of_output = tuple((dimension, self._meters[dimension]) for dimension in own if dimension in self._meters)
        self.counts_output = bool(self._of_output)
        self.has_plans = bool(traits.plan or traits.plans)
        self.tells = traits.tells and bool(self._meters or self.has_plans)
        self._fails = any(share for _, share in traits.failing)
        self._falters = traits.hang_wave is not None or max(traits.hangs, traits.stalls, traits.breaks) > 0
        self._neighbours = Neighbours(traits.neighbours, tuple(self._meters.values()))
        self._guard = Guard(traits.acceleration) if traits.acceleration is not None else None

    @property
    def refused(self) -> int:
        """Requests that were told so."""
        return self.met.total() - sum(self.met[trouble] for trouble in _NOT_TOLD)

    def arrive(self, ask: Ask, now_ns: int) -> Answer:
        """Take a request, or refuse or drop it.

        Args:
            now_ns: Since the provider was first asked; never less than before.
        """
        self.attempts += 1
        if self.inflight >= self.inflight_max:
            self.inflight_max = self.inflight + 1
        answer = self._answer(ask, now_ns)
        match answer:
            case Refused():
                self.met[answer.trouble] += 1
            case Dropped():
                self.met[answer.trouble] += 1
            case Accepted():
                self.inflight += 1
                cap = self.traits.concurrency
                assert cap is None or self.inflight <= cap, f"{self.inflight} in flight, and {cap} are allowed"
                self.tokens_in += ask.tokens_in
                self._generating[answer.number] = answer
                self._since_ns += now_ns
        return answer

    def generate(self, accepted: Accepted, tokens: int, now_ns: int) -> None:
        """So many tokens more of an answer are there, hence billed, whether or not the client still wants them."""
        accepted.tokens_out += tokens
        self.tokens_out += tokens
        if accepted.plan is not None:
            accepted.plan.take(tokens, now_ns)
        for dimension, counted in self._of_output:
            counted.take(tokens, now_ns)
            self.taken[dimension] += tokens

    def leave(self, accepted: Accepted, now_ns: int, *, whole: bool = True) -> None:
        """Free the slot of an answer that has ended.

        Args:
            whole: False: the client went away before the last of it.
        """
        del self._generating[accepted.number]  # a second time, this fails
        self.busy_ns += now_ns - accepted.since_ns
        self._since_ns -= accepted.since_ns
        self.inflight -= 1
        if not whole:
            self.tokens_lost += accepted.tokens_in + accepted.tokens_out

    def break_off(self, accepted: Accepted, now_ns: int) -> None:
        """Break the connection where `accepted` says, and free its slot."""
        assert accepted.breaks_after is not None
        self.met[Trouble.BREAK] += 1
        self.leave(accepted, now_ns, whole=False)

    @property
    def tokens_unfinished(self) -> int:
        """Input and output so far of the answers in flight."""
        return sum(each.tokens_in + each.tokens_out for each in self._generating.values())

    def plan(self, ask: Ask, now_ns: int) -> PlanReading | None:
        """Return what the head of an answer tells of the account's plan; None: nothing."""
        return self._plan(ask).reading(now_ns) if self.has_plans else None

    def readings(self, now_ns: int) -> dict[Metered, Reading]:
        """Return the header readings of every limited dimension."""
        return {dimension: bucket.reading(now_ns) for dimension, bucket in self._meters.items()}

    def used(self, now_ns: int) -> dict[str, float]:
        """Return the used share of slots, `concurrency`, and of each limited dimension."""
        used: dict[str, float] = {}
        for dimension, counted in self._meters.items():
            used[dimension] = self.taken[dimension] / counted.quota.allowed(now_ns)
        cap = self.traits.concurrency
        if cap is not None and now_ns:
            under_way_ns = self.inflight * now_ns - self._since_ns
            used["concurrency"] = (self.busy_ns + under_way_ns) / (cap * now_ns)
        return used

    def _answer(self, ask: Ask, now_ns: int) -> Answer:
        traits = self.traits
        for from_ns, to_ns in traits.outages:
            if from_ns <= now_ns < to_ns:
                return _refused(Weather.OUTAGE)
        for storm in traits.storms:
            hit = storm.from_ns <= now_ns < storm.to_ns
            if hit and struck(traits, self.seed, ask, self.attempts, storm.share):
                return _refused(storm.weather)
        if traits.concurrency is not None and self.inflight >= traits.concurrency:
            return _refused(Weather.OVERLOAD)
        if self._fails:
            time = self._tried[ask.key] = self._tried.get(ask.key, 0) + 1
            failing = fault(traits, self.seed, ask, time)
            if failing is not None:
                return _refused(failing)
        cached = self._cached(ask, now_ns) if traits.cache_ns or ask.taken is not None else 0
        plan = self._plan(ask) if self.has_plans else None
        if plan is not None and (opens_ns := plan.opens_ns(now_ns)) is not None:
            return _plan_used_up(opens_ns)
        if self._meters or self._guard is not None:
            refused = self._over(ask, cached, now_ns)
            if refused is not None:
                return refused
        if plan is not None:
            plan.take(ask.tokens_in - cached + cached // CACHED_AS, now_ns)
        return self._accept(ask, cached, plan, now_ns)

    def _plan(self, ask: Ask) -> SimulatedPlan:
        """Return the plan of the account of a request."""
        plan = self.plans.get(ask.account)
        if plan is None:
            limits = dict(self.traits.plans).get(ask.account, self.traits.plan)
            plan = self.plans[ask.account] = SimulatedPlan(limits)
        return plan

    def _accept(self, ask: Ask, cached: int, plan: SimulatedPlan | None, now_ns: int) -> Accepted:
        traits, seed = self.traits, self.seed
        if traits.cache_ns and ask.conversation:
            self._conversations[ask.conversation] = ask.tokens_in, now_ns + traits.cache_ns
        served = self.service(traits, seed, ask)
        if traits.cache_ns and ask.prefix:
            # Read once its answer begins, and remembered from then on.
            read_ns = now_ns + served.first_byte_ns
            warm_ns, until_ns = self._prefixes.get(ask.prefix, (read_ns, 0))
            self._prefixes[ask.prefix] = warm_ns if now_ns < until_ns else read_ns, read_ns + traits.cache_ns
        late_ns = more_ns = 0
        stalls = breaks = None
        if self._falters:
            time = self._answered[ask.key] = self._answered.get(ask.key, 0) + 1
            late_ns = hang_ns(traits, seed, ask, time, now_ns) if traits.hangs or traits.hang_wave is not None else 0
            if late_ns:
                self.met[Trouble.HANG] += 1
            stalls = stall_after(traits, seed, ask, time, served.events_count)
            if stalls is not None:
                self.met[Trouble.STALL] += 1
            else:
                breaks = break_after(traits, seed, ask, time, served.events_count)
        if traits.slowdown:
            late_ns += int(served.first_byte_ns * traits.slowdown * self.inflight)
            more_ns = int((served.latency_ns - served.first_byte_ns) * traits.slowdown * self.inflight)
        return Accepted(
            number=self.attempts,
            service=served.delayed(late_ns, more_ns) if late_ns or more_ns else served,
            since_ns=now_ns,
            tokens_in=ask.tokens_in,
            breaks_after=breaks,
            stalls_after=stalls,
            tokens_cached=cached,
            plan=plan,
        )

    def _cached(self, ask: Ask, now_ns: int) -> int:
        """Return the part of the prompt that is cached."""
        if ask.taken is not None and not self.traits.cache_ns:
            return min(ask.taken.tokens_cached, ask.tokens_in)
        tokens, until_ns = self._conversations.get(ask.conversation, (0, 0))
        if now_ns >= until_ns:
            tokens = 0
        warm_ns, until_ns = self._prefixes.get(ask.prefix, (0, 0))
        if warm_ns <= now_ns < until_ns:
            tokens = max(tokens, ask.prefix_tokens)
        return min(tokens, ask.tokens_in)

    def _over(self, ask: Ask, cached: int, now_ns: int) -> Refused | None:
        """Take from all quotas, or say which of them has too little; then none is charged."""
        if self._neighbours.neighbours:
            self._neighbours.take(now_ns)
        costs = self._costs(ask, cached)
        short: tuple[int, Metered] | None = None
        for dimension, counted in self._meters.items():
            wait_ns = counted.wait_ns(costs[dimension], now_ns)
            if wait_ns is None:
                message = f"{costs[dimension]} {dimension.value} are more than fit into one window"
                return Refused(trouble=Trouble.TOO_LARGE, status=413, kind="request_too_large", message=message)
            if wait_ns and (short is None or wait_ns > short[0]):
                short = wait_ns, dimension
        if short is not None:
            if self.traits.refusals_count and Metered.REQUESTS in self._meters:
                self._meters[Metered.REQUESTS].penalise(1, now_ns)
            return self._limited(*short)
        if self._guard is not None and not self._guard.lets_in(now_ns):
            return self._too_fast()
        for dimension, counted in self._meters.items():
            if dimension is not Metered.OUTPUT or self.traits.charges_most:
                counted.take(costs[dimension], now_ns)
                self.taken[dimension] += costs[dimension]
        return None

    def _costs(self, ask: Ask, cached: int) -> dict[Metered, int]:
        """Return the amounts that must be available.

        Output that is charged as it is generated needs only something to be left.
        """
        tokens_in = ask.tokens_in - cached
        most = ask.tokens_max_out if self.traits.charges_most else 0
        return {
            Metered.REQUESTS: 1,
            Metered.INPUT: tokens_in,
            Metered.OUTPUT: most or 1,
            Metered.TOKENS: tokens_in + most,
        }

    def _limited(self, wait_ns: int, dimension: Metered) -> Refused:
        quota = self._meters[dimension].quota
        window = "minute" if quota.window_ns == MINUTE_NS else f"{quota.window_ns / 1e9:g} s"
        said_ns = self.traits.says_retry_after_ns
        return Refused(
            trouble=OF_DIMENSION[dimension],
            status=429,
            kind="rate_limit_error",
            message=f"This request would exceed the rate limit of {quota.limit:,} {dimension.value} per {window}",
            dimension=dimension,
            retry_after_ns=wait_ns if said_ns is None else said_ns,
        )

    def _too_fast(self) -> Refused:
        return Refused(
            trouble=Trouble.ACCELERATION,
            status=429,
            kind="rate_limit_error",
            message="Your usage has grown too fast; ramp up gradually and keep it steady",
            retry_after_ns=self.traits.says_retry_after_ns or SECOND_NS,
        )


def _plan_used_up(opens_ns: int) -> Refused:
    return Refused(
        trouble=Trouble.PLAN,
        status=429,
        kind="rate_limit_error",
        message="This request would exceed your account's rate limit",
        retry_after_ns=opens_ns,
    )


def _refused(weather: Weather | NamedError) -> Refused | Dropped:
    match weather:
        case NamedError(kind=kind, status=status):
            return Refused(trouble=_OF_STATUS[status], status=status, kind=kind, message=kind, is_exact=True)
        case Weather.RESET:
            return Dropped()
        case Weather.UNREACHABLE:
            return Dropped(trouble=Trouble.UNREACHABLE)
        case _:
            trouble, status, kind, message = _OF_WEATHER[weather]
            return Refused(trouble=trouble, status=status, kind=kind, message=message)
