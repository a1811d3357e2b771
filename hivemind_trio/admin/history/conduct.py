"""Conduct of providers and agents: attempts, pauses and callers of late, as the scheduler's events show them."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Event,
    Finish,
    Grant,
    Permit,
    Reject,
    ResponseStarted,
)
from hivemind_trio.sim import SeenAttempt, group_of

ATTEMPTS_MAX: Final = 500
GAPS_MAX: Final = 500
CALLERS_MAX: Final = 1_000
FIRST_CALLS_MAX: Final = 200
GAP_MAX_NS: Final = 300_000_000_000
"""Longest pause that is one; after more the caller has begun anew."""


@final
@attrs.define(eq=False)
class LatestCall:
    """Caller of late."""

    call: Call
    """Its last one."""
    live: int = 1
    """Calls that are not over."""
    served: bool = False
    """The last that ended was answered."""
    ended_ns: int = 0
    """When that was."""


@final
@attrs.define(eq=False)
class Conduct:
    """Told of every event of the scheduler; O(1) each, and bounded."""

    gaps_ns: deque[int] = attrs.field(factory=lambda: deque(maxlen=GAPS_MAX), init=False)
    """Pauses between a caller's calls."""
    callers: OrderedDict[str, LatestCall] = attrs.field(factory=OrderedDict, init=False)
    """By the time of their last call."""
    first_calls: deque[tuple[int, Call]] = attrs.field(factory=lambda: deque(maxlen=FIRST_CALLS_MAX), init=False)
    """(Arrival, call) of callers that have begun, or begun anew."""
    _ended: deque[tuple[str, SeenAttempt]] = attrs.field(factory=lambda: deque(maxlen=ATTEMPTS_MAX), init=False)
    """(Provider, attempt)."""
    inflight: dict[CallId, tuple[str, SeenAttempt]] = attrs.field(factory=dict, init=False)
    """(Provider, attempt) of those in flight."""
    live: dict[CallId, Call] = attrs.field(factory=dict, init=False)
    """Calls that are not over."""
    _flying: Counter[str] = attrs.field(factory=Counter, init=False)
    """Attempts in flight by provider."""

    def observe(self, now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        """Note an event; an engine's `journal`."""
        match event:
            case CallArrived(call=call) if call.needs_slot:
                self._arrived(call, now_ns)
            case CallCancelled(call_id=call_id):
                self._over(call_id, now_ns, served=False)
            case AttemptEnded(call_id=call_id, ended=ended):
                self._attempt_ended(call_id, ended, now_ns)
                if ended.committed:
                    self._over(call_id, now_ns, served=200 <= ended.status < 300)
            case ResponseStarted(call_id=call_id, good=True) if call_id in self.inflight:
                provider, begun = self.inflight[call_id]
                if not begun.begun:
                    self.inflight[call_id] = provider, attrs.evolve(begun, begun=True)
            case _:
                pass
        for command in commands:
            match command:
                case Grant(call_id=call_id, permit=permit) if permit is not None:
                    self._granted(call_id, permit, now_ns)
                case Reject(call_id=call_id) | Finish(call_id=call_id):
                    self._over(call_id, now_ns, served=False)
                case _:
                    pass

    def attempts(self, now_ns: int) -> Mapping[str, list[SeenAttempt]]:
        """Return the attempts of each provider in the order in which they began, those in flight among them."""
        found: defaultdict[str, list[SeenAttempt]] = defaultdict(list)
        for provider, one in [*self._ended, *self._under_way(now_ns)]:
            found[provider].append(one)
        for several in found.values():
            several.sort(key=lambda one: one.began_ns)
        return found

    def answered(self) -> int:
        """Return the number of attempts of late that were answered well."""
        return sum(one.result is not None and 200 <= one.result.status < 300 for _, one in self._ended)

    def _granted(self, call_id: CallId, permit: Permit, now_ns: int) -> None:
        call = self.live.get(call_id)
        self._flying[permit.provider] += 1
        group = group_of(permit.group, "" if call is None else call.request.model)
        load = self._flying[permit.provider]
        self.inflight[call_id] = permit.provider, SeenAttempt(now_ns, 0, None, group=group, load=load)

    def _until(self, now_ns: int, provider: str, begun: SeenAttempt, result: AttemptResult | None) -> SeenAttempt:
        load = (begun.load + self._flying[provider]) / 2
        return attrs.evolve(begun, lasted_ns=now_ns - begun.began_ns, load=load, result=result)

    def _under_way(self, now_ns: int) -> Iterator[tuple[str, SeenAttempt]]:
        for provider, begun in self.inflight.values():
            yield provider, self._until(now_ns, provider, begun, None)

    def _attempt_ended(self, call_id: CallId, ended: AttemptResult, now_ns: int) -> None:
        provider, begun = self.inflight.pop(call_id, ("", None))
        if begun is None:
            return
        broken_off = ended.outcome is Outcome.IGNORED
        self._ended.append((provider, self._until(now_ns, provider, begun, None if broken_off else ended)))
        self._flying[provider] -= 1

    def _arrived(self, call: Call, now_ns: int) -> None:
        self.live[call.id] = call
        known = self.callers.get(call.caller)
        if known is None:
            self.callers[call.caller] = LatestCall(call)
            self.first_calls.append((now_ns, call))
            if len(self.callers) > CALLERS_MAX:
                self.callers.popitem(last=False)
            return
        if not known.live:
            if now_ns - known.ended_ns <= GAP_MAX_NS:
                self.gaps_ns.append(now_ns - known.ended_ns)
            else:
                self.first_calls.append((now_ns, call))
        known.call = call
        known.live += 1
        self.callers.move_to_end(call.caller)

    def _over(self, call_id: CallId, now_ns: int, *, served: bool) -> None:
        call = self.live.pop(call_id, None)
        known = None if call is None else self.callers.get(call.caller)
        if known is not None:
            known.live = max(0, known.live - 1)
            known.served, known.ended_ns = served, now_ns
