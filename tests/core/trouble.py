"""What one provider's troubles allow, kept a second time and by brute force: its circuit, its limit, its retries.

Nothing here is shared with `hivemind_trio.core` but the messages. Where chance or a float decides, the books have a
range.
"""

from __future__ import annotations

from fractions import Fraction

import attrs

from hivemind_trio.core import Circuit, Ended
from hivemind_trio.model import Outcome
from hivemind_trio.policy import Aimd, Breaker, Jitter, Provider, Retry

SECOND_NS = 1_000_000_000

HEALTHY = (Outcome.SUCCEEDED, Outcome.SLOW)
BROKEN = (Outcome.OVERLOADED, Outcome.FAILED, Outcome.DEGRADED, Outcome.UNREACHABLE)
TURNED_AWAY = (
    Outcome.QUOTA,
    Outcome.BURST,
    Outcome.TOO_FAST,
    Outcome.CONCURRENCY,
    Outcome.OVERLOADED,
    Outcome.UNREACHABLE,
)
CUTS = (Outcome.OVERLOADED, Outcome.CONCURRENCY, Outcome.BURST, Outcome.TOO_FAST, Outcome.SLOW)

SAVED_UP = 10
"""Retries that a provider may be sent before it has earned any."""
EARNS_NS = 10 * SECOND_NS
"""One more for each."""
ROUNDED = Fraction(1, 10**6)
"""Of a retry: the scheduler reckons in floats."""

Range = tuple[int, int]


@attrs.define(eq=False)
class Trouble:
    breaker: Breaker = attrs.field(factory=Breaker)
    aimd: Aimd | None = None
    high: int = 0
    limit: int = 0
    """As was told last."""
    moves_to: Range = (0, 0)
    """Where the limit may be, after the last attempt."""
    cut_ns: int | None = None
    circuit: Circuit = Circuit.CLOSED
    opens_ns: int | None = None
    """As the snapshot says; None while OPEN: it has not been looked at."""
    to_open_ns: Range = (0, 0)
    """Between when it will let a probe through."""
    samples: list[tuple[int, bool]] = attrs.field(factory=list)
    unreachable: int = 0
    round: int = 0
    probes: int = 0
    frozen: dict[str | None, int] = attrs.field(factory=dict)
    """Limits group -> until when."""
    obeyed: dict[str | None, tuple[int, int]] = attrs.field(factory=dict)
    """Until when a group was held up, and for how long; as of the last word that no success has followed."""
    spent: dict[str, tuple[int, int, int]] = attrs.field(factory=dict)
    """Model -> when the provider said that nothing is left, its pause, and until when nobody may ask again."""
    budget: Fraction = Fraction(SAVED_UP)
    budget_ns: int = 0

    def load(self, provider: Provider | None) -> None:
        """The settings of a new policy; None: the provider is gone."""
        self.spent = {}
        if provider is None:
            self.aimd, self.high, self.limit = None, 0, 0
        else:
            self.breaker, self.high = provider.breaker, provider.limit
            if provider.aimd is None:
                self.limit = provider.limit
            elif self.aimd is None:
                self.limit, self.cut_ns = provider.aimd.start, None
            else:
                self.limit = min(provider.limit, max(provider.aimd.low, self.limit))
            self.aimd = provider.aimd
        self.moves_to = self.limit, self.limit

    def advance(self, now_ns: int) -> None:
        self.frozen = {group: until_ns for group, until_ns in self.frozen.items() if until_ns > now_ns}
        if self.opens_ns is not None and now_ns >= self.opens_ns:
            self.try_again()

    def try_again(self) -> None:
        """The pause is over."""
        if self.circuit is Circuit.OPEN:
            self.circuit, self.opens_ns, self.probes = Circuit.HALF_OPEN, None, 0

    # ---- what an attempt teaches ----

    def learn(
        self, ended: Ended, group: str | None, *, probe: bool, granted_ns: int, now_ns: int, inflight: int, waits: bool
    ) -> None:
        """`inflight`: with the one that has ended; `waits`: somebody does, and more slots may be what it lacks."""
        closed = self._judge(ended, now_ns, probe=probe)
        self.moves_to = self._next_limit(ended.outcome, granted_ns, now_ns, inflight, waits=waits, closed=closed)
        self._hold(ended, group, granted_ns, now_ns)

    def _hold(self, ended: Ended, group: str | None, granted_ns: int, now_ns: int) -> None:
        """A word to wait holds the group up; one that was waited for in vain twice as long, up to a minute."""
        until_ns, waited_ns = self.obeyed.get(group, (0, 0))
        if ended.outcome is Outcome.QUOTA and ended.retry_after_ns:
            in_vain_ns = 0 if granted_ns < until_ns else min(2 * waited_ns, 60 * SECOND_NS)
            waits_ns = max(ended.retry_after_ns, in_vain_ns)
            self.frozen[group] = max(self.frozen.get(group, 0), now_ns + waits_ns)
            self.obeyed[group] = self.frozen[group], max(waits_ns, waited_ns)
        elif ended.outcome in HEALTHY and granted_ns >= until_ns:
            self.obeyed.pop(group, None)

    def _judge(self, ended: Ended, now_ns: int, *, probe: bool) -> bool:
        """Whether the circuit closes. When one that opens lets a probe through is for the snapshot to say."""
        outcome = ended.outcome
        if self.circuit is Circuit.HALF_OPEN and probe:
            self.probes += outcome in HEALTHY
            if outcome in BROKEN:
                self._open(ended, now_ns)
            elif self.probes >= self.breaker.probes:
                self.circuit, self.samples, self.round, self.unreachable = Circuit.CLOSED, [], 0, 0
                return True
        elif self.circuit is Circuit.CLOSED and outcome in (*HEALTHY, *BROKEN):
            self.unreachable = self.unreachable + 1 if outcome is Outcome.UNREACHABLE else 0
            self.samples.append((now_ns, outcome in BROKEN))
            self.samples = [each for each in self.samples if now_ns - each[0] < self.breaker.over_ns]
            failed = sum(broken for _, broken in self.samples)
            many = len(self.samples) >= self.breaker.of and failed >= self.breaker.trip * len(self.samples)
            if outcome in BROKEN and (many or self.unreachable >= 5):
                self._open(ended, now_ns)
        return False

    def _open(self, ended: Ended, now_ns: int) -> None:
        longest_ns = max(30 * SECOND_NS, self.breaker.open_ns)
        pause_ns, asked_ns = min(self.breaker.open_ns * 2**self.round, longest_ns), ended.retry_after_ns or 0
        self.circuit, self.opens_ns = Circuit.OPEN, None
        self.to_open_ns = now_ns + max(int(0.8 * pause_ns), asked_ns), now_ns + max(int(1.2 * pause_ns), asked_ns)
        self.round += 1

    def opened(self, opens_ns: int) -> None:
        """The snapshot says when it will let a probe through."""
        assert self.to_open_ns[0] <= opens_ns <= self.to_open_ns[1]
        self.opens_ns = opens_ns

    def _next_limit(
        self, outcome: Outcome, granted_ns: int, now_ns: int, inflight: int, *, waits: bool, closed: bool
    ) -> Range:
        """In which direction it moves, and once for each epoch."""
        here, aimd = self.limit, self.aimd
        if aimd is None:
            return here, here
        news = self.cut_ns is None or (granted_ns > self.cut_ns and now_ns - self.cut_ns >= aimd.cooldown_ns)
        cut = outcome in CUTS and news
        if cut:
            self.cut_ns = now_ns
        if closed:
            return aimd.low, max(aimd.low, (here + max(1, aimd.increase)) // 4)
        if cut:
            # With half or more of it gone, an overload is seen in whole slots.
            return aimd.low, max(aimd.low, here - 1) if outcome is Outcome.OVERLOADED else here
        if outcome is Outcome.SUCCEEDED and (waits or inflight >= 0.75 * here):
            return here, min(self.high, here + max(1, aimd.increase))
        return here, here

    # ---- money ----

    def pay(self, model: str, ended: Ended, granted_ns: int, now_ns: int) -> None:
        """What an attempt says of the account."""
        if ended.outcome in HEALTHY:
            self.spent.pop(model, None)
        elif ended.outcome is Outcome.TERMINAL:
            said_ns, pause_ns, _ = self.spent.get(model, (now_ns, 30 * SECOND_NS, 0))
            if granted_ns > said_ns:
                pause_ns = min(2 * pause_ns, 300 * SECOND_NS)
            self.spent[model] = now_ns, pause_ns, now_ns + min(pause_ns, ended.retry_after_ns or pause_ns)

    def shut(self, model: str, now_ns: int) -> bool:
        return model in self.spent and now_ns < self.spent[model][2]

    def ask(self, model: str, now_ns: int) -> None:
        """One call is let in; whoever comes after it waits for what it is told, or half a minute."""
        if model in self.spent:
            self.spent[model] = (*self.spent[model][:2], now_ns + 30 * SECOND_NS)

    # ---- retries ----

    def earn(self, now_ns: int, share: float = 0.0) -> None:
        """What time has earned, and a share of a call that is sent for the first time."""
        self.budget = min(Fraction(SAVED_UP), self.budget + Fraction(now_ns - self.budget_ns, EARNS_NS))
        self.budget = min(Fraction(SAVED_UP), self.budget + Fraction(share))
        self.budget_ns = now_ns

    def rest(self, retry: Retry, ended: Ended, attempt: int, now_ns: int) -> Range | None:
        """Between when the next attempt may be due; None: there is no retry left for it."""
        self.earn(now_ns)
        if ended.outcome not in TURNED_AWAY and 1 - self.budget > ROUNDED:
            return None
        low_ns, high_ns = pause(retry, ended, attempt)
        return now_ns + low_ns, now_ns + high_ns


def pause(retry: Retry, ended: Ended, attempt: int) -> Range:
    """What the provider asked for and up to a tenth more, or a back-off that doubles."""
    if ended.retry_after_ns is not None:
        return ended.retry_after_ns, int(1.1 * ended.retry_after_ns)
    most_ns = min(retry.last_ns, retry.first_ns * 2 ** (attempt - 1))
    return {Jitter.NONE: most_ns, Jitter.EQUAL: most_ns // 2, Jitter.FULL: 0}[retry.jitter], most_ns
