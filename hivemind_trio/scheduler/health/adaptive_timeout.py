"""Adaptive timeouts: usual times to begin and continue an answer, per kind of call.

An attempt is judged by its progress, not its age: by the time to the first byte, and by the longest silence after it.
What is usual differs by a factor of a thousand between models, between short and long inputs, and between streams and
plain answers, whose first byte is their last; so it is learned for each of these alone, and what is too long is a
multiple of its 99th percentile. Of an answer the longest silence counts, not every gap: a stream has a thousand short
gaps, and if it thinks for a minute once, that one is what must not be taken for the end.

The first stream that hangs need not wait for twenty answers of its own kind. From fewer, of all sizes of its model, the
longest time counts, and the multiple grows as the number of samples falls: of times whose tail is as heavy as Pareto's
with index 1, the next one exceeds `k` times the largest of `n` once in about `k (n + 1)`, so that few samples with a
large multiple are as safe as twenty with the policy's. Nor is it less than the longest time that any stream of the
provider has needed. Plain answers are too different for this: their first byte is their last.

What was given up says nothing of what is usual, or a provider that hangs often would never be cut short. But were it
let be, a model that has become slower for good would be given up for ever. So, as TCP does with its timer (Karn and
Partridge, 1987), each time doubles the deadline, until an answer comes, which counts; and so does each attempt of one
call that was given up. One that was refused does not: it says nothing of how long the call takes.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import Request
from hivemind_trio.policy import Failure, Reaper, Timeouts
from hivemind_trio.scheduler.protocol.attempt_result import AttemptResult

SECOND_NS: Final = 1_000_000_000
FIRST_BYTE_MIN_NS: Final = 30 * SECOND_NS
"""No deadline for the first byte is shorter: to try again is dear, and half a minute is not."""
IDLE_MIN_NS: Final = 20 * SECOND_NS

SAMPLES_MIN: Final = 20
"""Before that nobody knows what is usual; of streams it is bounded."""
SAMPLES_MAX: Final = 1_024
"""Then each count is halved: what was usual a thousand answers ago fades."""
PARTS: Final = 100
"""The percentile: one in so many is larger."""

DOUBLINGS_MAX: Final = 4
"""After so many the deadlines are what a policy allows, or near it."""

SIZE_FACTOR: Final = 4
"""Inputs of one size class over those of the class below it, and at most the time that it takes to read them."""

KEYS_MAX: Final = 256
"""Kinds (model, stream, size) for one provider, and models: callers choose model names. Who was not heard of for
longest goes."""

_NEVER_NS: Final = 1 << 62
_BITS: Final = 22
"""Milliseconds up to 70 minutes; what is longer counts as that."""
_BUCKETS: Final = (_BITS - 2) * 8


@final
@attrs.define(eq=False)
class LatencyHistogram:
    """Times, counted in buckets each of which is an eighth of its own size wide.

    After HdrHistogram (Tene, 2012): 160 counters whatever comes, every quantile too large by an eighth at most, and in
    whole numbers, so that all machines agree.
    """

    samples: int = attrs.field(default=0, init=False)
    stale: bool = attrs.field(default=True, init=False)
    """True if the usual time must be computed anew."""
    _counts: list[int] = attrs.field(factory=lambda: [0] * _BUCKETS, init=False)
    _last: int = attrs.field(default=0, init=False)
    """No bucket behind it has any."""
    _found: int = attrs.field(default=0, init=False)
    """Index of the bucket of the usual time."""
    _above: int = attrs.field(default=0, init=False)
    """Samples behind that one."""

    def add(self, time_ns: int) -> None:
        """Count one."""
        bucket = _bucket(time_ns)
        counts = self._counts
        counts[bucket] += 1
        self.samples += 1
        if bucket > self._last:
            self._last = bucket
        if self.samples >= SAMPLES_MAX:
            self._counts = [count // 2 for count in counts]
            self.samples = sum(self._counts)
            self.stale = True
        elif not self.stale:
            # Mostly the bucket that was found is still the one, which is quicker to see than to find it.
            found, above = self._found, self._above + (bucket > self._found)
            self._above = above
            enough = found == 0 or (above + counts[found]) * PARTS > self.samples
            self.stale = above * PARTS > self.samples or not enough

    def usual_ns(self) -> int | None:
        """Return the time that at most one in `PARTS` exceeds; None: too few samples."""
        if self.samples < SAMPLES_MIN:
            return None
        if self.stale:
            self._find()
        return _largest_ns(self._found)

    def _find(self) -> None:
        self._found = self._above = 0
        for bucket in range(self._last, 0, -1):
            with_it = self._above + self._counts[bucket]
            if with_it * PARTS > self.samples:
                self._found = bucket
                break
            self._above = with_it
        self.stale = False


@final
@attrs.define(eq=False)
class _WaitStatistics:
    """One kind of waiting."""

    _sketch: LatencyHistogram = attrs.field(factory=LatencyHistogram, init=False)
    _given_up: int = attrs.field(default=0, init=False)
    """In a row."""
    _given_up_ns: int = attrs.field(default=0, init=False)
    """Time waited in vain, when that was counted last."""

    def add(self, time_ns: int) -> bool:
        """Add a sample of success; return True if it may change the deadline."""
        self._sketch.add(time_ns)
        given_up, self._given_up, self._given_up_ns = self._given_up, 0, 0
        return self._sketch.stale or given_up > 0

    def give_up(self, time_ns: int) -> bool:
        """Add a sample of a wait in vain.

        Return True if it counted. Of those that began under one deadline, the first alone is news.
        """
        news = 2 * time_ns > 3 * self._given_up_ns
        if news:
            self._given_up += 1
            self._given_up_ns = time_ns
        return news

    def deadline_ns(self, multiple: float, least_ns: int, given_up: int, few_ns: int) -> int:
        """Return the deadline; `_NEVER_NS`: unknown.

        Args:
            given_up: Attempts of this call that were given up.
            few_ns: Deadline while there are too few samples of this kind.
        """
        usual_ns = self._sketch.usual_ns()
        bound_ns = few_ns if usual_ns is None else int(min(usual_ns * multiple, _NEVER_NS))
        doublings = min(max(self._given_up, given_up), DOUBLINGS_MAX)
        return min(max(least_ns, bound_ns) << doublings, _NEVER_NS)

    @property
    def known(self) -> bool:
        """True if there are enough samples."""
        return self._sketch.samples >= SAMPLES_MIN


@final
@attrs.define(eq=False)
class _Longest:
    """The longest time that streams of one model have needed, whatever their size."""

    samples: int = attrs.field(default=0, init=False)
    """Up to `SAMPLES_MIN`: more make no difference."""
    time_ns: int = attrs.field(default=0, init=False)

    def add(self, time_ns: int) -> None:
        """Count one."""
        self.samples = min(SAMPLES_MIN, self.samples + 1)
        self.time_ns = max(self.time_ns, time_ns)

    def deadline_ns(self, multiple: float) -> int:
        """Return the multiple of it: a larger one the fewer samples there are; `_NEVER_NS`: there are none."""
        if not self.samples:
            return _NEVER_NS
        return int(min(self.time_ns * multiple * SAMPLES_MIN / self.samples, _NEVER_NS))


@final
@attrs.define(eq=False)
class _ModelStreams:
    """Streams of one model."""

    first_byte: _Longest = attrs.field(factory=_Longest, init=False)
    silence: _Longest = attrs.field(factory=_Longest, init=False)
    largest: int = attrs.field(default=0, init=False)
    """Class of the largest input that has had a first byte."""


@final
@attrs.define(eq=False)
class _CallKind:
    """Calls that are alike."""

    size: int
    """Class of their input."""
    streams: _ModelStreams | None
    """Those of the model; None: they are no streams."""
    first_byte: _WaitStatistics = attrs.field(factory=_WaitStatistics, init=False)
    silence: _WaitStatistics = attrs.field(factory=_WaitStatistics, init=False)
    bounds: tuple[Timeouts, Reaper, int, Timeouts] | None = attrs.field(default=None, init=False)
    """Bounds of a call without attempts in vain, and their sources: two settings of the policy, and the number of
    changes of what streams have needed; None: to be made anew."""

    @property
    def known(self) -> bool:
        """True if its own samples bound it, and no others."""
        return self.first_byte.known and self.silence.known


@final
@attrs.define(eq=False)
class AdaptiveTimeout:
    """One provider's."""

    kinds: dict[tuple[str, bool, int], _CallKind] = attrs.field(factory=dict, init=False)
    streams: dict[str, _ModelStreams] = attrs.field(factory=dict, init=False)
    """By model."""
    _begun_ns: int = attrs.field(default=0, init=False)
    """The longest that a stream of any model has needed to its first byte."""
    _silent_ns: int = attrs.field(default=0, init=False)
    """The same between two pieces."""
    _changes: int = attrs.field(default=0, init=False)
    """Number of changes of what streams have needed."""

    def on_begun(self, request: Request, first_byte_ns: int) -> None:
        """Learn from an answer that has begun. `request` is as it was sent."""
        kind = self._kind(request)
        if kind.first_byte.add(first_byte_ns):
            kind.bounds = None
        streams = kind.streams
        if streams is None:
            return
        longest = streams.first_byte
        if longest.samples < SAMPLES_MIN or first_byte_ns > longest.time_ns or kind.size > streams.largest:
            longest.add(first_byte_ns)
            streams.largest = max(streams.largest, kind.size)
            self._begun_ns = max(self._begun_ns, first_byte_ns)
            self._changes += 1

    def on_ended(self, request: Request, ended: AttemptResult, *, begun: bool = False) -> None:
        """Learn from one attempt. `request` is as it was sent.

        Args:
            begun: `on_begun` has been told of its first byte.
        """
        if ended.first_byte_ns is not None and ended.failure is Failure.FIRST_BYTE:
            kind = self._kind(request)
            if kind.first_byte.give_up(ended.first_byte_ns):
                kind.bounds = None
        elif ended.first_byte_ns is not None and not begun:
            self.on_begun(request, ended.first_byte_ns)
        if ended.silence_ns is None:
            return
        kind = self._kind(request)
        if ended.failure is Failure.IDLE:
            if kind.silence.give_up(ended.silence_ns):
                kind.bounds = None
            return
        if kind.silence.add(ended.silence_ns):
            kind.bounds = None
        streams = kind.streams
        if streams is None:
            return
        longest = streams.silence
        if longest.samples < SAMPLES_MIN or ended.silence_ns > longest.time_ns:
            longest.add(ended.silence_ns)
            self._silent_ns = max(self._silent_ns, ended.silence_ns)
            self._changes += 1

    def _kind(self, request: Request) -> _CallKind:
        """Return the class of a call that is heard of now."""
        key = _key(request)
        kind = self.kinds.pop(key, None)
        if kind is None:
            kind = _CallKind(key[2], self._streams(request) if request.stream else None)
            if len(self.kinds) >= KEYS_MAX:
                del self.kinds[next(iter(self.kinds))]
        self.kinds[key] = kind
        return kind

    def _streams(self, request: Request) -> _ModelStreams:
        """Return the streams of a model of which another class is heard of now."""
        streams = self.streams.pop(request.model, None)
        if streams is None:
            streams = _ModelStreams()
            if len(self.streams) >= KEYS_MAX:
                del self.streams[next(iter(self.streams))]
        self.streams[request.model] = streams
        return streams

    def bounds(self, request: Request, timeouts: Timeouts, reaper: Reaper, given_up: int) -> Timeouts:
        """Return the bounds of an attempt: the policy's, or what is far from usual if that is less.

        Args:
            request: As it is sent.
            given_up: Attempts of this call that were given up. The next one has twice the time, so that a call that is
                honestly slow is not given up as often as its class of retries allows.
        """
        kind = self.kinds.get(_key(request))
        if kind is None:
            kind = _CallKind(_size(request), self.streams.get(request.model) if request.stream else None)
        if given_up:
            return self._bounds(kind, timeouts, reaper, given_up)
        made = kind.bounds
        if made is None or made[0] is not timeouts or made[1] is not reaper or made[2] != self._changes:
            made = kind.bounds = timeouts, reaper, self._changes, self._bounds(kind, timeouts, reaper, 0)
        return made[3]

    def _bounds(self, kind: _CallKind, timeouts: Timeouts, reaper: Reaper, given_up: int) -> Timeouts:
        few = (_NEVER_NS, _NEVER_NS) if kind.known else self._few(kind, reaper)
        first_byte_ns = kind.first_byte.deadline_ns(reaper.first_byte, FIRST_BYTE_MIN_NS, given_up, few[0])
        idle_ns = kind.silence.deadline_ns(reaper.idle, IDLE_MIN_NS, given_up, few[1])
        if first_byte_ns >= timeouts.first_byte_ns and idle_ns >= timeouts.idle_ns:
            return timeouts
        return attrs.evolve(
            timeouts,
            first_byte_ns=min(timeouts.first_byte_ns, first_byte_ns),
            idle_ns=min(timeouts.idle_ns, idle_ns),
        )

    def _few(self, kind: _CallKind, reaper: Reaper) -> tuple[int, int]:
        """Return the deadlines of a call of whose kind too little is known: to its first byte, and silent.

        `_NEVER_NS`: unknown.
        """
        streams = kind.streams
        if streams is None:
            return _NEVER_NS, _NEVER_NS
        # A longer input takes longer to read, by as much at most.
        larger = SIZE_FACTOR ** max(0, kind.size - streams.largest)
        return (
            max(streams.first_byte.deadline_ns(reaper.first_byte * larger), self._begun_ns),
            max(streams.silence.deadline_ns(reaper.idle), self._silent_ns),
        )


def _key(request: Request) -> tuple[str, bool, int]:
    """Return the class of a call."""
    return request.model, request.stream, _size(request)


def _size(request: Request) -> int:
    """Return the class of its input: those of one size are within a factor of four."""
    return request.tokens_in.bit_length() // 2


def _bucket(time_ns: int) -> int:
    """Below 8 ms a bucket each; then eight for every doubling."""
    time_ms = time_ns // 1_000_000
    if time_ms < 16:
        return time_ms
    if time_ms >> _BITS:
        return _BUCKETS - 1
    shift = time_ms.bit_length() - 4
    return shift * 8 + (time_ms >> shift)


def _largest_ns(bucket: int) -> int:
    """Return the upper bound of a bucket."""
    shift = max(bucket // 8 - 1, 0)
    return ((bucket - shift * 8 + 1) << shift) * 1_000_000
