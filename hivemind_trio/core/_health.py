"""What attempts have taught about one provider: how much it bears, whether it is there, which quotas are used up."""

from __future__ import annotations

from random import Random
from typing import Final, final

import attrs

from hivemind_trio.model import Outcome, Reason, Request
from hivemind_trio.policy import Answer, Degraded, Provider
from hivemind_trio.policy import Breaker as BreakerSettings

from ._aimd import Aimd
from ._breaker import Breaker, Circuit
from ._call import CallId
from ._outcome import HEALTHY, Ended
from ._parts import ALL_PARTS, Parts
from ._progress import Progress
from ._ramp import Ramp
from ._retry import RetryBudget
from ._spent import Spent

AFTER_OUTAGE: Final = 0.25
"""Of the former limit, once a circuit has closed: the provider comes back with cold caches and a crowd at its door."""

LONGEST_NS: Final = 60 * 1_000_000_000
"""However often a provider's word was waited for in vain: it is left alone no longer, unless it says so itself."""


@final
@attrs.define(eq=False)
class Health:
    """Learns from every attempt's end, and says how many slots there are and whether they are to be had at all."""

    _random: Random
    _parts: Parts = ALL_PARTS
    breaker: Breaker = attrs.field(init=False)
    retries: RetryBudget = attrs.field(factory=RetryBudget, init=False)
    spent: Spent = attrs.field(factory=Spent, init=False)
    ramp: Ramp = attrs.field(factory=Ramp, init=False)
    limit: int = attrs.field(default=0, init=False)
    """Slots: what the policy says, or within its bounds what AIMD has come to. It and the next two are kept, not
    reckoned: every event asks."""
    closed: Reason | None = attrs.field(default=None, init=False)
    """Why no slot is to be had, however few are held."""
    wakes_ns: int | None = attrs.field(default=None, init=False)
    """When time alone will open something."""
    quotas: dict[str | None, int] = attrs.field(factory=dict, init=False)
    """Limits group -> until when it is left alone, because the provider has said that its quota is used up."""
    _obeyed: dict[str | None, tuple[int, int]] = attrs.field(factory=dict, init=False)
    """Limits group -> until when its calls were held up last, and for how long, if none has succeeded since."""
    _fixed: int = attrs.field(default=0, init=False)
    _aimd: Aimd | None = attrs.field(default=None, init=False)
    progress: Progress = attrs.field(factory=Progress, init=False)
    degraded: Degraded | None = attrs.field(default=None, init=False)
    """What says of a good answer that it is worth nothing."""
    _probe: CallId | None = attrs.field(default=None, init=False)
    """The one call in flight that a half-open circuit has let through."""

    def __attrs_post_init__(self) -> None:
        self.breaker = Breaker(BreakerSettings(), self._random)

    def _look(self) -> None:
        circuit = self.breaker.circuit
        shut = circuit is Circuit.OPEN or (circuit is Circuit.HALF_OPEN and self._probe is not None)
        self.closed = Reason.BREAKER_OPEN if shut else None
        self.limit = self._fixed if self._aimd is None else self._aimd.limit
        self.wakes_ns = self.breaker.opens_ns
        if self.quotas:
            quota_ns = min(self.quotas.values())
            self.wakes_ns = quota_ns if self.wakes_ns is None else min(quota_ns, self.wakes_ns)

    @property
    def up(self) -> bool:
        """A call that goes there now is tried, if only as a probe."""
        return self.closed is None

    def load(self, provider: Provider | None) -> None:
        """Take the settings of a new policy; what has been learned stays. None: no new attempts will begin."""
        self.spent.clear()
        if provider is None:
            self._fixed, self._aimd = 0, None
            self._look()
            return
        self._fixed, self.degraded = provider.limit, provider.degraded
        self.breaker.settings = provider.breaker
        if provider.aimd is None:
            self._aimd = None
        elif self._aimd is None:
            self._aimd = Aimd(provider.aimd, provider.limit)
        else:
            self._aimd.load(provider.aimd, provider.limit)
        self._look()

    def on_probe(self, call_id: CallId) -> None:
        """An attempt begins while the circuit is half open."""
        self._probe = call_id
        self._look()

    def judged(self, ended: Ended, request: Request) -> Ended:
        """What the end is taken for, once the policy has been asked: a good answer may be worth nothing.

        Args:
            request: As it was sent.
        """
        if self.degraded is None or ended.outcome not in HEALTHY or not 200 <= ended.status < 300:
            return ended
        answer = Answer(status=ended.status, model=request.model, stream=request.stream, usage=ended.usage)
        return attrs.evolve(ended, outcome=Outcome.DEGRADED) if self.degraded.counts(answer) else ended

    def on_ended(
        self,
        call_id: CallId,
        ended: Ended,
        group: str | None,
        *,
        granted_ns: int,
        now_ns: int,
        inflight: int,
        sought: bool,
        holds_group: bool = True,
    ) -> bool:
        """Learn from one attempt; whether there may be other slots now than there were.

        Args:
            group: The limits group that it ran in, whose quota it may have found used up.
            granted_ns: When it began.
            inflight: Attempts in flight when it ended, itself included.
            sought: See `Pool.sought`.
            holds_group: Whether a quota that is used up is one that only the group as a whole can wait for. Those that
                are mirrored hold up whoever takes of them.
        """
        probe = call_id == self._probe
        if probe:
            self._probe = None
        before = self.breaker.circuit
        news = self.breaker.on_ended(ended.outcome, probe=probe, now_ns=now_ns, retry_after_ns=ended.retry_after_ns)
        if self._aimd is not None:
            news |= self._aimd.on_ended(
                ended.outcome, granted_ns=granted_ns, now_ns=now_ns, inflight=inflight, sought=sought
            )
            if before is Circuit.HALF_OPEN and self.breaker.circuit is Circuit.CLOSED:
                self._aimd.restart(AFTER_OUTAGE)
        if ended.outcome is Outcome.BURST and self._parts.growth:
            self.ramp.on_complaint(granted_ns, now_ns)
        if holds_group and ended.outcome is Outcome.QUOTA and ended.retry_after_ns:
            self._hold(group, ended.retry_after_ns, granted_ns, now_ns)
            news = True
        elif self._obeyed and ended.outcome in HEALTHY and granted_ns >= self._obeyed.get(group, (0, 0))[0]:
            self._obeyed.pop(group, None)
        if news or probe:
            self._look()
        return news or probe

    def _hold(self, group: str | None, said_ns: int, granted_ns: int, now_ns: int) -> None:
        """Stay away for as long as the provider says; or, if that was in vain before, for twice as long as then.

        Azure says to come back in a second while a minute's quota is used up.
        """
        until_ns, waited_ns = self._obeyed.get(group, (0, 0))
        # What went before that was over is no news of it.
        wait_ns = said_ns if granted_ns < until_ns else max(said_ns, min(2 * waited_ns, LONGEST_NS))
        self.quotas[group] = max(self.quotas.get(group, 0), now_ns + wait_ns)
        self._obeyed[group] = self.quotas[group], max(wait_ns, waited_ns)

    def on_time(self, now_ns: int) -> bool:
        """Whether time has opened something."""
        opened = self.breaker.on_time(now_ns)
        if self.quotas:
            back = [group for group, until_ns in self.quotas.items() if until_ns <= now_ns]
            for group in back:
                del self.quotas[group]
            opened = opened or bool(back)
        if opened:
            self._look()
        return opened
