"""LLM provider model of the adversary bench: a pure state machine with time as an argument.

It shares no code with the provider of `hivemind_trio.sim`: the scheduler and that simulator were made for each other,
and this bench asks what the scheduler does with providers it was not made for. Admission, service and failures are
decided here; statuses, headers and bodies are the text that the wire carries, and the proxy's own readers parse them.

Service is processor sharing. All exchanges advance at one rate that depends on how many there are, so one virtual clock
(`work_ns`) serves all of them, and each milestone is a point on that clock (Zhang and Zwart, "Steady state analysis of
processor sharing", for the construction).
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Sequence
from email.utils import formatdate
from enum import Enum, StrEnum, auto
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Final, NamedTuple, Protocol, final

import attrs

from hivemind_trio.model import Api
from hivemind_trio.model import Dimension as Counted

SECOND_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * SECOND_NS
EPOCH_S: Final = 1_790_000_000
"""Unix time at which the virtual clock is 0."""
OTHERS_STEP_NS: Final = SECOND_NS // 4
"""Interval at which other users of the key take their part."""
OTHERS_CALL_NS: Final = 2 * SECOND_NS
"""Time between two calls of other users, as far as tokens are concerned."""


# ---- traits ----


@final
class Kind(StrEnum):
    """Rate-limit algorithm."""

    BUCKET = "bucket"
    FIXED = "fixed"
    ROLLING = "rolling"
    GCRA = "gcra"


@final
class Charge(StrEnum):
    """Time at which output tokens count."""

    BEFORE = "before"
    """`max_tokens` at admission, for good."""
    REFUND = "refund"
    """`max_tokens` at admission, corrected at the end."""
    AFTER = "after"
    """The real number at the end."""


@final
class Tells(StrEnum):
    """Answers that carry rate-limit headers."""

    ALL = "all"
    REFUSALS = "refusals"
    NTH = "nth"
    """Every third answer."""
    NONE = "none"


@final
class Reset(StrEnum):
    """Form of a reset header."""

    NATIVE = "native"
    """Anthropic: RFC 3339 in whole seconds, upwards; OpenAI: a Go duration."""
    DOWN = "down"
    """RFC 3339 in whole seconds, downwards."""
    EPOCH = "epoch"
    """Unix time in whole seconds."""
    SECONDS = "seconds"
    """Whole seconds from now."""
    ABSENT = "absent"


@final
class Word(StrEnum):
    """Truth of `retry-after`."""

    TRUE = "true"
    ABSENT = "absent"
    SHORT = "short"
    """A fifth of the true time."""
    LONG = "long"
    """Four times the true time."""
    LIE = "lie"
    """60 s, whatever the truth."""
    ONE = "one"
    """1 s, whatever the truth."""


@final
class Spelling(StrEnum):
    """Form of `retry-after`."""

    SECONDS = "seconds"
    MS = "ms"
    DATE = "date"


@final
class Full(StrEnum):
    """Answer to one request too many at the same time."""

    WORDED = "429 worded"
    BARE = "429"
    OVERLOADED = "529"


@final
class Shape(StrEnum):
    """Dependence of service time on the number of exchanges."""

    FLAT = "flat"
    LINEAR = "linear"
    QUADRATIC = "quadratic"


@final
@attrs.frozen(kw_only=True)
class Quota:
    """One rate limit."""

    counted: Counted
    kind: Kind
    limit: int
    """Per window."""
    window_ns: int = MINUTE_NS
    depth: int = 0
    """Bucket and GCRA: what may go at once; 0: all of the limit."""
    phase_ns: int = 0
    """Fixed: age of the first window at the beginning."""
    from_first: bool = False
    """Fixed: a window begins with the first request after the last one."""

    @property
    def size(self) -> int:
        """The most that can be admitted at one instant."""
        return (self.depth or self.limit) if self.kind in (Kind.BUCKET, Kind.GCRA) else self.limit

    @property
    def rate(self) -> float:
        """Refill per ns."""
        return self.limit / self.window_ns


@final
@attrs.frozen(kw_only=True)
class Storm:
    """A time in which a share of all requests fails at the door."""

    from_ns: int
    to_ns: int
    share: float = 1.0
    status: int = 529
    """0: connection refused."""


@final
@attrs.frozen(kw_only=True)
class Others:
    """Other users of the same key."""

    share: float
    """Of each quota's rate."""
    on_ns: int = 0
    off_ns: int = 0
    """They pause for `off_ns` after each `on_ns`; 0: they never pause."""

    def active(self, now_ns: int) -> bool:
        """True if they send requests at this time."""
        return not self.off_ns or now_ns % (self.on_ns + self.off_ns) < self.on_ns


@final
@attrs.frozen(kw_only=True)
class Guard:
    """Acceleration limit: per span at most `factor` times the requests of the span before, and `base` always."""

    base: int
    factor: float
    span_ns: int = 10 * SECOND_NS


@final
@attrs.frozen(kw_only=True)
class Fates:
    """Probabilities of failure of an admitted request."""

    reset: float = 0.0
    """Connection reset, at any point of the answer."""
    stall: float = 0.0
    """Silence, from any point of the answer."""
    error_first: float = 0.0
    """An error is the first event of a 200 stream."""
    error_started: float = 0.0
    """An error after `message_start`, before any content."""
    error_mid: float = 0.0
    """An error after content."""
    no_end: float = 0.0
    """The stream ends without its closing event, with or without content."""


@final
@attrs.frozen(kw_only=True)
class Traits:
    """All that one provider is like."""

    api: Api = Api.ANTHROPIC
    quotas: tuple[Quota, ...] = ()
    """Of each limits group."""
    groups: int = 1
    """Limits groups: models with limits of their own."""
    unlimited: int = 0
    """The last so many groups have no quotas."""
    charge: Charge = Charge.AFTER
    refusals_count: bool = False
    tells: Tells = Tells.ALL
    stale_ns: int = 0
    """Headers are refreshed only so often."""
    round_to: int = 1
    """Unit of `remaining`."""
    round_up: bool = False
    dated: bool = True
    clock_off_s: float = 0.0
    """Clock of the limiter, minus the clock of `date`."""
    reset: Reset = Reset.NATIVE
    reset_whole: bool = True
    """A reset is when the quota is whole; False: when it has room for one more."""
    word: Word = Word.TRUE
    spelling: Spelling = Spelling.SECONDS
    worded: bool = True
    """A quota refusal names its limit."""
    caps: tuple[tuple[int, int], ...] = ()
    """(From when, concurrency cap), in order; empty: no cap."""
    full: Full = Full.WORDED
    guard: Guard | None = None
    others: Others | None = None
    storms: tuple[Storm, ...] = ()
    overloads: float = 0.0
    """Share of requests that get a 529 at random."""
    fates: Fates = Fates()
    error_status: int = 529
    """Kind of error events in streams."""
    shape: Shape = Shape.FLAT
    knee: int = 8
    """Linear: exchanges that double the time; quadratic: exchanges up to which nothing slows down."""
    first_ns: int = SECOND_NS
    """To the first content event, alone."""
    token_ns: int = 15_000_000
    """Per output token, alone."""
    rtt_ns: int = 30_000_000

    def slowdown(self, count: int) -> float:
        """Service time of `count` exchanges at once, over that of one alone."""
        if self.shape is Shape.LINEAR:
            return 1.0 + max(0, count - 1) / self.knee
        if self.shape is Shape.QUADRATIC and count > self.knee:
            return (count / self.knee) ** 2
        return 1.0

    def cap(self, now_ns: int) -> int | None:
        """Concurrency cap at this time."""
        found = None
        for from_ns, cap in self.caps:
            if from_ns <= now_ns:
                found = cap
        return found

    def best_inflight(self, most: int) -> int:
        """Number of exchanges with the highest throughput, up to `most`."""
        return max(range(1, most + 1), key=lambda count: (count / self.slowdown(count), count))

    def work_ns(self, tokens_out: int) -> int:
        """Service time of one call alone."""
        return self.first_ns + tokens_out * self.token_ns

    def storm(self, now_ns: int) -> Storm | None:
        """The strongest storm at this time."""
        there = [storm for storm in self.storms if storm.from_ns <= now_ns < storm.to_ns]
        return max(there, key=lambda storm: storm.share, default=None)


# ---- requests and answers ----


@final
@attrs.frozen(kw_only=True)
class Ask:
    """One request."""

    key: str
    """Identifies the turn: failures are drawn for it, not for the order of arrival."""
    tokens_in: int
    tokens_out: int
    tokens_max: int
    group: int = 0


@final
@attrs.frozen
class Answer:
    """A complete answer, or the head of one and an error event."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    why: str = ""
    """The provider's true reason, for people."""


@final
class Stage(Enum):
    """Milestones of an exchange."""

    HEAD = auto()
    CONTENT = auto()
    """First content event."""
    END = auto()
    """The closing event, and the end."""
    ERROR = auto()
    """An error event, and the end."""
    CUT = auto()
    """Connection reset."""
    NO_END = auto()
    """End of the stream without its closing event."""


@attrs.define(eq=False)
class Exchange:
    """One request at the provider."""

    ask: Ask
    began_ns: int
    refused: Answer | None = None
    """Refused at the door."""
    unreachable: bool = False
    head: dict[str, str] = attrs.field(factory=dict)
    """Headers of the 200."""
    plan: deque[tuple[float, Stage]] = attrs.field(factory=deque)
    """Milestones to come, on the clock of work."""
    over: bool = False
    stalled: bool = False
    """No milestone is left, and it has not ended."""
    started: float = 0.0
    """Admission, on the clock of work."""
    charged: list[tuple[_Meter, Any, float]] = attrs.field(factory=list)
    """What was taken for output: meter, its receipt, amount."""
    owner: Any = None

    @property
    def admitted(self) -> bool:
        """True if it is being served."""
        return self.refused is None and not self.unreachable


def error_event(api: Api, status: int) -> bytes:
    """Body of an error, as the data of a stream event or as a whole answer."""
    return _error(api, status, "Overloaded" if status == 529 else "Internal server error")


# ---- meters ----


class _Meter(Protocol):
    """State of one quota."""

    quota: Quota

    def room(self, now_ns: int) -> float: ...
    def take(self, amount: float, now_ns: int) -> Any: ...
    def correct(self, receipt: Any, more: float, now_ns: int) -> None: ...
    def ready_ns(self, need: float, now_ns: int) -> int: ...
    def whole_ns(self, now_ns: int) -> int: ...


@final
@attrs.define(eq=False)
class _Level:
    """Token bucket, and GCRA, which is one that is kept as a time."""

    quota: Quota
    level: float = attrs.field(init=False)
    at_ns: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.level = float(self.quota.size)

    def room(self, now_ns: int) -> float:
        """What may be taken now; below 0 after a charge that came late."""
        if now_ns > self.at_ns:
            self.level = min(float(self.quota.size), self.level + (now_ns - self.at_ns) * self.quota.rate)
            self.at_ns = now_ns
        return self.level

    def take(self, amount: float, now_ns: int) -> None:
        """Charge."""
        self.level = self.room(now_ns) - amount

    def correct(self, _receipt: None, more: float, now_ns: int) -> None:
        """Charge more, or less, for something that was charged before."""
        self.level = min(float(self.quota.size), self.room(now_ns) - more)

    def ready_ns(self, need: float, now_ns: int) -> int:
        """Time at which so much can be taken."""
        missing = need - self.room(now_ns)
        return now_ns if missing <= 1e-9 else now_ns + math.ceil(missing / self.quota.rate)

    def whole_ns(self, now_ns: int) -> int:
        """Time at which nothing is used."""
        return self.ready_ns(self.quota.size, now_ns)


@final
@attrs.define(eq=False)
class Count:
    """Fixed window."""

    quota: Quota
    used: float = attrs.field(init=False, default=0.0)
    begins_ns: int = attrs.field(init=False, default=0)
    _open: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.begins_ns = -self.quota.phase_ns if not self.quota.from_first else 0

    def room(self, now_ns: int) -> float:
        """What may be taken now."""
        window_ns = self.quota.window_ns
        if now_ns >= self.begins_ns + window_ns:
            self.used = 0.0
            self._open = False
            if self.quota.from_first:
                self.begins_ns = now_ns
            else:
                self.begins_ns += (now_ns - self.begins_ns) // window_ns * window_ns
        return self.quota.limit - self.used

    def take(self, amount: float, now_ns: int) -> int:
        """Charge."""
        self.room(now_ns)
        if self.quota.from_first and not self._open:
            self.begins_ns, self._open = now_ns, True
        self.used += amount
        return self.begins_ns

    def correct(self, _receipt: int, more: float, now_ns: int) -> None:
        """Charge more, or less, in the window of now."""
        self.room(now_ns)
        self.used = max(0.0, self.used + more)

    def ready_ns(self, need: float, now_ns: int) -> int:
        """Time at which so much can be taken."""
        return now_ns if self.room(now_ns) >= need else self.begins_ns + self.quota.window_ns

    def whole_ns(self, now_ns: int) -> int:
        """Time at which nothing is used."""
        self.room(now_ns)
        return now_ns if not self.used else self.begins_ns + self.quota.window_ns


@final
@attrs.define(eq=False)
class _Log:
    """Rolling window."""

    quota: Quota
    used: float = attrs.field(init=False, default=0.0)
    _entries: deque[list[float]] = attrs.field(init=False, factory=deque)

    def room(self, now_ns: int) -> float:
        """What may be taken now."""
        entries, gone_ns = self._entries, now_ns - self.quota.window_ns
        while entries and entries[0][0] <= gone_ns:
            self.used -= entries.popleft()[1]
        if not entries:
            self.used = 0.0
        return self.quota.limit - self.used

    def take(self, amount: float, now_ns: int) -> list[float]:
        """Charge."""
        self.room(now_ns)
        entry = [now_ns, amount]
        self._entries.append(entry)
        self.used += amount
        return entry

    def correct(self, receipt: list[float], more: float, now_ns: int) -> None:
        """Charge more, or less, for something that was charged before; a charge that comes late counts from then."""
        if more > 0:
            self.take(more, now_ns)
        elif receipt[0] > now_ns - self.quota.window_ns:
            receipt[1] += more
            self.used += more

    def ready_ns(self, need: float, now_ns: int) -> int:
        """Time at which so much can be taken."""
        missing = need - self.room(now_ns)
        if missing <= 1e-9:
            return now_ns
        for at_ns, amount in self._entries:
            missing -= amount
            if missing <= 1e-9:
                return int(at_ns) + self.quota.window_ns
        return now_ns + self.quota.window_ns

    def whole_ns(self, now_ns: int) -> int:
        """Time at which nothing is used."""
        self.room(now_ns)
        return int(self._entries[-1][0]) + self.quota.window_ns if self._entries else now_ns


def _meter(quota: Quota) -> _Meter:
    match quota.kind:
        case Kind.FIXED:
            return Count(quota)
        case Kind.ROLLING:
            return _Log(quota)
        case _:
            return _Level(quota)


# ---- the provider ----


class _Due(NamedTuple):
    at: float
    order: int
    exchange: Exchange
    stage: Stage


@final
@attrs.define(eq=False)
class Provider:
    """One provider's state. Every method takes the time, which never goes backwards."""

    traits: Traits
    seed: int
    epoch_s: int = EPOCH_S
    """Unix time at which its time is 0."""
    meters: list[list[_Meter]] = attrs.field(init=False)
    inflight: int = attrs.field(init=False, default=0)
    inflight_max: int = attrs.field(init=False, default=0)
    arrivals: int = attrs.field(init=False, default=0)
    refusals: int = attrs.field(init=False, default=0)
    _working: int = attrs.field(init=False, default=0)
    work_ns: float = attrs.field(init=False, default=0.0)
    _at_ns: int = attrs.field(init=False, default=0)
    _due: list[_Due] = attrs.field(init=False, factory=list)
    _orders: int = attrs.field(init=False, default=0)
    _tries: dict[str, int] = attrs.field(init=False, factory=dict)
    _served: dict[str, int] = attrs.field(init=False, factory=dict)
    _others_ns: int = attrs.field(init=False, default=0)
    _owed: dict[int, float] = attrs.field(init=False, factory=dict)
    """Use by others that has not been taken yet, for each meter."""
    _grown: deque[int] = attrs.field(init=False, factory=deque)
    _shown: dict[int, tuple[int, dict[str, str]]] = attrs.field(init=False, factory=dict)
    _answers: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        traits = self.traits
        self.meters = [
            [] if group >= traits.groups - traits.unlimited else [_meter(quota) for quota in traits.quotas]
            for group in range(traits.groups)
        ]

    # ---- requests ----

    def arrive(self, ask: Ask, now_ns: int) -> Exchange:
        """Admit a request, or refuse it."""
        self.advance(now_ns)
        self.arrivals += 1
        exchange = Exchange(ask, now_ns)
        tried = self._tries[ask.key] = self._tries.get(ask.key, -1) + 1
        traits, chance = self.traits, Random(f"{self.seed}/{ask.key}/{tried}")
        storm = traits.storm(now_ns)
        if storm is not None and chance.random() < storm.share:
            exchange.unreachable = not storm.status
            if storm.status:
                exchange.refused = self._broken(storm.status, "storm", now_ns)
        elif chance.random() < traits.overloads:
            exchange.refused = self._broken(529, "random", now_ns)
        else:
            exchange.refused = self._refuses(ask, now_ns)
        if exchange.admitted:
            self._admit(exchange, now_ns)
        else:
            self.refusals += 1
        return exchange

    def ready_ns(self, ask: Ask, now_ns: int) -> int | None:
        """Time at which a request would be admitted if nothing else came; None: when an exchange ends.

        What fails at random is no part of it.
        """
        self.advance(now_ns)
        storm = self.traits.storm(now_ns)
        if storm is not None and storm.share >= 1:
            return storm.to_ns
        cap = self._cap(now_ns)
        if cap is not None and self.inflight >= cap:
            return None
        ready_ns = max((meter.ready_ns(need, now_ns) for meter, need, _ in self._needs(ask)), default=now_ns)
        return max(ready_ns, self._guard_ns(now_ns))

    def next_ns(self) -> int | None:
        """Time of the next milestone."""
        while self._due and self._due[0].exchange.over:
            heappop(self._due)
        if not self._due:
            return None
        left = max(0.0, self._due[0].at - self.work_ns)
        return self._at_ns + math.ceil(left * self.traits.slowdown(self._working))

    def _ends_ns(self) -> int | None:
        """Time at which the first exchange ends, if no other comes."""
        ends = [due.exchange.plan[-1][0] if due.exchange.plan else due.at for due in self._due if not due.exchange.over]
        if not ends:
            return None
        return self._at_ns + math.ceil(max(0.0, min(ends) - self.work_ns) * self.traits.slowdown(self._working))

    def due(self, now_ns: int) -> list[tuple[Exchange, Stage]]:
        """Milestones that have come."""
        self.advance(now_ns)
        found = []
        while self._due and (self._due[0].exchange.over or self._due[0].at <= self.work_ns + 0.5):
            _, _, exchange, stage = heappop(self._due)
            if exchange.over:
                continue
            found.append((exchange, stage))
            if stage in (Stage.END, Stage.ERROR, Stage.CUT, Stage.NO_END):
                self._finish(exchange, now_ns)
            else:
                self._schedule(exchange)
        return found

    def leave(self, exchange: Exchange, now_ns: int) -> None:
        """The client has gone."""
        self.advance(now_ns)
        if not exchange.over:
            self._finish(exchange, now_ns)

    # ---- admission ----

    def _cap(self, now_ns: int) -> int | None:
        cap, others = self.traits.cap(now_ns), self.traits.others
        if cap is None or others is None or not others.active(now_ns):
            return cap
        return max(1, cap - int(cap * others.share))

    def _needs(self, ask: Ask) -> list[tuple[_Meter, float, float]]:
        """Per quota: what must be free, and what is charged at once."""
        late = self.traits.charge is Charge.AFTER
        needs = []
        for meter in self.meters[ask.group]:
            match meter.quota.counted:
                case Counted.REQUESTS:
                    amount: float = 1
                case Counted.INPUT:
                    amount = ask.tokens_in
                case Counted.OUTPUT:
                    amount = 0 if late else ask.tokens_max
                case Counted.TOKENS:
                    amount = ask.tokens_in + (0 if late else ask.tokens_max)
            needs.append((meter, max(1.0, min(amount, meter.quota.size)), float(amount)))
        return needs

    def _refuses(self, ask: Ask, now_ns: int) -> Answer | None:
        cap, traits = self._cap(now_ns), self.traits
        if cap is not None and self.inflight >= cap:
            ends_ns = self._ends_ns() or now_ns + SECOND_NS
            status = 529 if traits.full is Full.OVERLOADED else 429
            words = "Number of concurrent connections has exceeded your rate limit."
            if traits.full is Full.BARE:
                words = "Too many requests."
            return self._refusal(ask, status, words, "cap", ends_ns - now_ns, now_ns)
        guard_ns = self._guard_ns(now_ns)
        if guard_ns > now_ns:
            words = "Request rate increased too quickly. Slow down."
            return self._refusal(ask, 429, words, "guard", guard_ns - now_ns, now_ns)
        needs = self._needs(ask)
        waits = [(meter.ready_ns(need, now_ns), meter.quota) for meter, need, _ in needs]
        late = [wait for wait in waits if wait[0] > now_ns]
        if not late:
            return None
        ready_ns, quota = max(late, key=lambda wait: wait[0])
        if traits.refusals_count:
            self._charge_refusal(needs, now_ns)
            ready_ns = max(meter.ready_ns(need, now_ns) for meter, need, _ in needs)
        words = "Too many requests."
        if traits.worded:
            words = _WORDS[traits.api].format(limit=quota.limit, counted=_COUNTED[quota.counted])
        return self._refusal(ask, 429, words, f"quota {quota.counted.value}", ready_ns - now_ns, now_ns)

    def _charge_refusal(self, needs: Sequence[tuple[_Meter, float, float]], now_ns: int) -> None:
        for meter, _, _ in needs:
            if meter.quota.counted is Counted.REQUESTS and (
                meter.quota.kind in (Kind.FIXED, Kind.ROLLING) or meter.room(now_ns) >= 1
            ):
                meter.take(1, now_ns)

    def _guard_ns(self, now_ns: int) -> int:
        guard = self.traits.guard
        if guard is None:
            return now_ns
        grown, span_ns = self._grown, guard.span_ns
        while grown and grown[0] <= now_ns - 2 * span_ns:
            grown.popleft()
        before = sum(1 for at_ns in grown if at_ns <= now_ns - span_ns)
        inside = len(grown) - before
        if inside < max(guard.base, before * guard.factor):
            return now_ns
        return grown[before] + span_ns + 1

    def _admit(self, exchange: Exchange, now_ns: int) -> None:
        ask, traits = exchange.ask, self.traits
        for meter, _, amount in self._needs(ask):
            receipt = meter.take(amount, now_ns)
            if meter.quota.counted in (Counted.OUTPUT, Counted.TOKENS):
                exchange.charged.append((meter, receipt, amount))
        if traits.guard is not None:
            self._grown.append(now_ns)
        self.inflight += 1
        self._working += 1
        self.inflight_max = max(self.inflight_max, self.inflight)
        exchange.started = self.work_ns
        served = self._served[ask.key] = self._served.get(ask.key, -1) + 1
        exchange.head = self._headers(ask.group, now_ns, good=True)
        exchange.plan.extend(
            (self.work_ns + at_ns, stage)
            for at_ns, stage in planned(traits, ask, Random(f"{self.seed}/{ask.key}/fate/{served}"))
        )
        self._schedule(exchange)

    # ---- service ----

    def replan(self, exchange: Exchange, ask: Ask, plan: Sequence[tuple[float, Stage]]) -> None:
        """Give an exchange another course from now on: milestones relative to its admission."""
        self._due = [due for due in self._due if due.exchange is not exchange]
        heapify(self._due)
        if exchange.stalled:
            exchange.stalled = False
            self._working += 1
        exchange.ask = ask
        exchange.plan = deque((exchange.started + at, stage) for at, stage in plan)
        self._schedule(exchange)

    def _schedule(self, exchange: Exchange) -> None:
        if not exchange.plan:
            exchange.stalled = True
            self._working -= 1  # it holds a slot and takes no work
            return
        at, stage = exchange.plan.popleft()
        self._orders += 1
        heappush(self._due, _Due(at, self._orders, exchange, stage))

    def _finish(self, exchange: Exchange, now_ns: int) -> None:
        exchange.over = True
        self.inflight -= 1
        if not exchange.stalled:
            self._working -= 1
        if self.traits.charge is Charge.BEFORE:
            return
        for meter, receipt, amount in exchange.charged:
            real = self.generated(exchange)
            if meter.quota.counted is Counted.TOKENS:
                real += exchange.ask.tokens_in
            if real != amount:
                meter.correct(receipt, real - amount, now_ns)

    def generated(self, exchange: Exchange) -> int:
        """Output tokens of an exchange so far."""
        done_ns = self.work_ns - exchange.started - self.traits.first_ns
        return max(0, min(exchange.ask.tokens_out, round(done_ns / self.traits.token_ns)))

    def advance(self, now_ns: int) -> None:
        """Do the work of the time that has passed, and take what others use in it."""
        if now_ns > self._at_ns:
            self.work_ns += (now_ns - self._at_ns) / self.traits.slowdown(self._working)
            self._at_ns = now_ns
        others = self.traits.others
        if others is None:
            return
        while self._others_ns + OTHERS_STEP_NS <= now_ns:
            self._others_ns += OTHERS_STEP_NS
            if not others.active(self._others_ns):
                continue
            for place, meter in enumerate(meter for meters in self.meters for meter in meters):
                quota = meter.quota
                owed = self._owed.get(place, 0.0) + others.share * quota.rate * OTHERS_STEP_NS
                # They send calls, too: a shallow bucket fills between two of them.
                each = 1.0 if quota.counted is Counted.REQUESTS else others.share * quota.rate * OTHERS_CALL_NS
                each = min(each, float(quota.size))
                # They have retries of their own: nobody gets more of the key by asking more often than they do.
                while owed >= each:
                    meter.take(each, self._others_ns)
                    owed -= each
                self._owed[place] = owed

    # ---- words ----

    def _broken(self, status: int, why: str, now_ns: int) -> Answer:
        """A failure at the door that has nothing to do with limits."""
        headers = self._date(now_ns)
        said_ns = {Word.LIE: MINUTE_NS, Word.ONE: SECOND_NS}.get(self.traits.word)
        if status in (503, 529) and said_ns is not None:
            headers |= self._retry_after(said_ns, now_ns)
        return Answer(status, headers, error_event(self.traits.api, status), why)

    def _refusal(self, ask: Ask, status: int, words: str, why: str, true_ns: int, now_ns: int) -> Answer:
        traits = self.traits
        headers = self._headers(ask.group, now_ns, good=False)
        said_ns: float | None
        match traits.word:
            case Word.TRUE:
                said_ns = true_ns
            case Word.ABSENT:
                said_ns = None
            case Word.SHORT:
                said_ns = true_ns / 5
            case Word.LONG:
                said_ns = true_ns * 4
            case Word.LIE:
                said_ns = MINUTE_NS
            case Word.ONE:
                said_ns = SECOND_NS
        if said_ns is not None:
            headers |= self._retry_after(said_ns, now_ns)
        return Answer(status, headers, _error(traits.api, status, words), why)

    def _retry_after(self, said_ns: float, now_ns: int) -> dict[str, str]:
        said_s = said_ns / SECOND_NS
        match self.traits.spelling:
            case Spelling.SECONDS:
                return {"retry-after": str(max(1, math.ceil(said_s)))}
            case Spelling.MS:
                milliseconds = max(1, math.ceil(said_s * 1000))
                return {"retry-after-ms": str(milliseconds), "retry-after": str(max(1, math.ceil(said_s)))}
            case Spelling.DATE:
                at_s = self.epoch_s + now_ns / SECOND_NS + said_s + self.traits.clock_off_s
                return {"retry-after": formatdate(math.ceil(at_s), usegmt=True)}

    def _date(self, now_ns: int) -> dict[str, str]:
        return {"date": formatdate(self.epoch_s + now_ns // SECOND_NS, usegmt=True)} if self.traits.dated else {}

    def _headers(self, group: int, now_ns: int, *, good: bool) -> dict[str, str]:
        traits, date = self.traits, self._date(now_ns)
        self._answers += 1
        told = traits.tells is Tells.ALL or (traits.tells is Tells.NTH and self._answers % 3 == 0)
        if not (told or (traits.tells is Tells.REFUSALS and not good)) or not self.meters[group]:
            return date
        shown = self._shown.get(group)
        if shown is None or now_ns - shown[0] >= traits.stale_ns:
            shown = self._shown[group] = now_ns, self._quota_headers(group, now_ns)
        return shown[1] | date

    def _quota_headers(self, group: int, now_ns: int) -> dict[str, str]:
        traits, headers = self.traits, {}
        anthropic = traits.api is Api.ANTHROPIC
        for meter in self.meters[group]:
            quota = meter.quota
            named = (
                quota.counted.value
                if quota.counted in (Counted.REQUESTS, Counted.TOKENS)
                else f"{quota.counted.value}-tokens"
            )
            limit = quota.size if quota.kind is Kind.GCRA else quota.limit
            left = max(0.0, meter.room(now_ns)) / traits.round_to
            rounded = (math.ceil(left) if traits.round_up else math.floor(left)) * traits.round_to
            whole_ns = meter.whole_ns(now_ns) if traits.reset_whole else meter.ready_ns(1, now_ns)
            reset = self._reset(whole_ns - now_ns, now_ns)
            name = f"anthropic-ratelimit-{named}-{{}}" if anthropic else f"x-ratelimit-{{}}-{named}"
            headers[name.format("limit")] = str(limit)
            headers[name.format("remaining")] = str(min(limit, rounded))
            if reset is not None:
                headers[name.format("reset")] = reset
        return headers

    def _reset(self, left_ns: int, now_ns: int) -> str | None:
        traits, left_s = self.traits, left_ns / SECOND_NS
        at_s = self.epoch_s + now_ns / SECOND_NS + left_s + traits.clock_off_s
        match traits.reset:
            case Reset.ABSENT:
                return None
            case Reset.SECONDS:
                return str(math.ceil(left_s))
            case Reset.EPOCH:
                return str(math.ceil(at_s))
            case Reset.DOWN:
                return _rfc3339(math.floor(at_s))
            case Reset.NATIVE:
                if traits.api is Api.ANTHROPIC:
                    return _rfc3339(math.ceil(at_s))
                return f"{math.ceil(left_s * 1000)}ms" if left_s < 1 else f"{left_s:.3f}s"


_WORDS: Final = {
    Api.ANTHROPIC: "This request would exceed your organization's rate limit of {limit:,} {counted} per minute.",
    Api.OPENAI: "Rate limit reached on {counted} per min. Limit: {limit}.",
}

_NAMED: Final = {
    Counted.REQUESTS: "requests",
    Counted.INPUT: "input-tokens",
    Counted.OUTPUT: "output-tokens",
    Counted.TOKENS: "tokens",
}

_COUNTED: Final = {
    Counted.REQUESTS: "requests",
    Counted.INPUT: "input tokens",
    Counted.OUTPUT: "output tokens",
    Counted.TOKENS: "tokens",
}


def _rfc3339(at_s: int) -> str:
    days, rest = divmod(at_s, 86_400)
    # Days since 1970 to a date (Hinnant, "chrono-compatible low-level date algorithms").
    shifted = days + 719_468
    era, day = divmod(shifted, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    ordinal = day - (365 * year + year // 4 - year // 100)
    part = (5 * ordinal + 2) // 153
    month = part + 3 if part < 10 else part - 9
    dated = f"{year + era * 400 + (month <= 2):04}-{month:02}-{ordinal - (153 * part + 2) // 5 + 1:02}"
    return f"{dated}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}Z"


def _error(api: Api, status: int, message: str) -> bytes:
    if api is Api.ANTHROPIC:
        kind = {429: "rate_limit_error", 529: "overloaded_error"}.get(status, "api_error")
        return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    kind = {429: "rate_limit_exceeded", 503: "service_unavailable", 529: "server_is_overloaded"}.get(
        status, "server_error"
    )
    return json.dumps({"error": {"type": kind, "code": kind, "message": message, "param": None}}).encode()


def planned(traits: Traits, ask: Ask, chance: Random) -> list[tuple[float, Stage]]:
    """Milestones of an admitted request, relative to its admission, on the clock of work."""
    first_ns, whole_ns = float(traits.first_ns), float(traits.work_ns(ask.tokens_out))
    head_ns = first_ns * 0.8
    head, content, fates = (head_ns, Stage.HEAD), (first_ns, Stage.CONTENT), traits.fates
    point = chance.random() * whole_ns
    before = [each for each in (head, content) if each[0] < point]
    middle_ns = first_ns + (whole_ns - first_ns) * chance.random()
    draw = chance.random()
    fates_in_turn: tuple[tuple[float, list[tuple[float, Stage]]], ...] = (
        (fates.reset, [*before, (point, Stage.CUT)]),
        (fates.stall, before),
        (fates.error_first, [head, (head_ns, Stage.ERROR)]),
        (fates.error_started, [head, (head_ns + (first_ns - head_ns) * 0.5, Stage.ERROR)]),
        (fates.error_mid, [head, content, (middle_ns, Stage.ERROR)]),
        (fates.no_end / 2, [head, (first_ns, Stage.NO_END)]),
        (fates.no_end / 2, [head, content, (middle_ns, Stage.NO_END)]),
    )
    for share, plan in fates_in_turn:
        if draw < share:
            return plan
        draw -= share
    return [head, content, (whole_ns, Stage.END)]
