"""Principles that one provider's circuit, limit and gates keep to, checked by brute force.

Only the messages of `hivemind_trio.scheduler` are used here. The books follow what the scheduler says and reject
what no principle allows; they do not predict a limit or the length of a pause. Money and retries are kept exactly.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import attrs

from hivemind_trio.model import Outcome
from hivemind_trio.policy import (
    BREAKER_MEMORY,
    AimdSettings,
    CircuitBreakerSettings,
    Jitter,
    ProviderSettings,
    RetrySettings,
)
from hivemind_trio.scheduler import AttemptResult, CallId, Circuit, LimitChanged
from hivemind_trio.scheduler.health.aimd import ABANDONED_NS

SECOND_NS = 1_000_000_000

HEALTHY = (Outcome.SUCCEEDED, Outcome.SLOW)
BROKEN = (Outcome.OVERLOADED, Outcome.FAILED, Outcome.DEGRADED, Outcome.UNREACHABLE)
TOO_OFTEN = (Outcome.QUOTA, Outcome.BURST, Outcome.TOO_FAST)
TURNED_AWAY = (*TOO_OFTEN, Outcome.CONCURRENCY, Outcome.OVERLOADED, Outcome.UNREACHABLE)
REFUSING = (Outcome.OVERLOADED, Outcome.CONCURRENCY)
LOWERS = (*REFUSING, *HEALTHY)
"""Outcomes that may lower the limit. A success may: growth that did not help is taken back."""

SERVED_MAX_NS = 30 * SECOND_NS
"""Time for which an attempt in flight may be what a provider serves instead of those that it refuses."""
IN_A_ROW = 5
"""Failures one after the other that open a circuit whatever its share."""
OBEYED_NS = 20 * SECOND_NS
"""A provider's word up to this is obeyed; a longer one is probed, and nothing stands for longer."""
PROBED_NS = 5 * SECOND_NS
OPEN_MAX_NS = 15 * SECOND_NS
"""Longest `retry-after` for which an open circuit waits."""
SOON_NS = 5 * SECOND_NS
CAP_NS = 10 * SECOND_NS
"""Time for which a limit on concurrent requests is at least believed."""
CAP_MAX_NS = 70 * SECOND_NS
"""Time after which none from before matters."""

BORROWED = 3
"""Retries that calls may wait for."""
SAVED_UP = 10
"""Retries that a provider may be sent before it has earned any."""
EARNS_NS = 10 * SECOND_NS
"""One more for each."""
ROUNDED = Fraction(1, 10**6)
"""Of a retry: the scheduler reckons in floats."""

Range = tuple[int, int]


@attrs.define(eq=False)
class Sample:
    """One attempt, as its circuit sees it."""

    granted_ns: int
    level: int
    """In flight when it was granted, itself included."""
    known_ns: int = 0
    """When `failed` was learned."""
    failed: bool | None = None
    """None: it is not known."""
    overloaded: bool = False
    """True if it was refused for that."""
    ended: bool = False
    sure: bool = True
    """The settings have been the same since it was granted."""


@attrs.define(eq=False)
class Word:
    """Gate of one limits group, or of one model of it: what refusals for going too often allow."""

    heard: bool = False
    """The provider has refused a call, so dispatch may be paced."""
    until_ns: int = 0
    said_ns: int = 0
    binds: bool = True
    """No probe and no reload has shown otherwise."""
    evidence_ns: int = 0
    """Time of the last grant or end."""
    inflight: dict[CallId, bool] = attrs.field(factory=dict)
    """Call -> True if it was granted before the provider's word was over."""
    served: set[CallId] = attrs.field(factory=set)
    """Those that the provider has accepted."""
    released: int = 0
    """Calls that may go because others have ended that were accepted: what was set aside for them may come back."""

    def granted(self, call_id: CallId, now_ns: int, *, late: bool) -> bool:
        """Check a grant. Return True if it may be a probe."""
        early = now_ns < self.until_ns
        if early and self.released:
            self.released -= 1
        elif early and self.binds and not late:
            assert not self.inflight, "only a probe goes before the provider's word is over, and it goes alone"
            assert self.said_ns > OBEYED_NS, "a word that short is obeyed"
            assert now_ns >= self.evidence_ns + PROBED_NS, "the next probe goes 5 s after the last"
        alone = self.heard and not self.inflight
        self.inflight[call_id] = early
        self.evidence_ns = now_ns
        return alone

    def accepted(self, call_id: CallId) -> None:
        """An answer to it began, or was good."""
        self.served.add(call_id)
        if self.inflight.get(call_id):
            self.binds = False

    def ended(self, call_id: CallId, ended: AttemptResult, now_ns: int) -> None:
        if ended.outcome in TOO_OFTEN:
            self.heard, self.released = True, 0
            said_ns = ended.retry_after_ns or 0
            if now_ns + said_ns >= self.until_ns:
                self.until_ns, self.said_ns = now_ns + said_ns, said_ns
        elif ended.outcome in HEALTHY:
            self.accepted(call_id)
        self.released += self.heard and call_id in self.served
        self.served.discard(call_id)
        self.inflight.pop(call_id, None)
        self.evidence_ns = now_ns

    def goes_by_ns(self) -> int:
        """Return when a call goes at the latest, if one waits in line and none is in flight."""
        return max(self.evidence_ns + SOON_NS, min(self.until_ns, self.evidence_ns + OBEYED_NS))


@attrs.define(eq=False)
class Trouble:
    breaker: CircuitBreakerSettings = attrs.field(factory=CircuitBreakerSettings)
    aimd: AimdSettings | None = None
    high: int = 0
    limit: int = 0
    """As was told last."""
    most: int = 0
    """The highest that was ever told."""
    circuit: Circuit = Circuit.CLOSED
    opens_ns: int | None = None
    """As the snapshot says; None while OPEN: it has not been looked at."""
    to_open_ns: Range = (0, 0)
    """Between when it will let a probe through."""
    samples: list[Sample] = attrs.field(factory=list)
    """Attempts granted since the circuit was last closed, in order."""
    lowered: list[tuple[int, Outcome | None]] = attrs.field(factory=list)
    """When something came that may have lowered the limit; None: an outage, or another policy."""
    probes: int = 0
    """That have succeeded."""
    words: dict[tuple[str | None, str], Word] = attrs.field(factory=dict)
    """(Limits group, model; empty: the group has a block) -> its gate."""
    spent: dict[str, tuple[int, int, int]] = attrs.field(factory=dict)
    """Model -> when the provider said that nothing is left, its pause, and until when nobody may ask again."""
    failed_probe: CallId | None = None
    """The last probe of the circuit that failed, since it was closed."""
    budget: Fraction = Fraction(SAVED_UP)
    budget_ns: int = 0
    lent: int = 0
    """Retries that calls have gone with before the budget had them, subtracted from the calls served meanwhile."""

    def load(self, provider: ProviderSettings | None, now_ns: int = 0) -> None:
        """The settings of a new policy; None: the provider is gone."""
        self.spent = {}
        for word in self.words.values():
            word.binds = False
        for sample in self.samples:
            sample.sure = False
        self.lowered.append((now_ns, None))
        if provider is None:
            self.aimd, self.high, self.limit = None, 0, 0
            return
        self.breaker, self.high = provider.breaker, provider.limit
        if provider.aimd is None:
            self.limit = provider.limit
        elif self.aimd is None:
            self.limit = provider.aimd.start
        self.aimd = provider.aimd
        self.most = max(self.most, self.limit)

    def loaded(self, limit: int) -> None:
        """Check the limit that a reload has come to."""
        assert self.bounds[0] <= limit <= self.bounds[1], "a reload brings the limit within its bounds"
        self.limit = limit
        self.most = max(self.most, limit)

    @property
    def bounds(self) -> Range:
        return (self.aimd.low if self.aimd is not None else self.high), self.high

    def advance(self, now_ns: int) -> None:
        if self.opens_ns is not None and now_ns >= self.opens_ns:
            self.try_again()

    def try_again(self) -> None:
        """The pause is over."""
        if self.circuit is Circuit.OPEN:
            self.circuit, self.opens_ns, self.probes = Circuit.HALF_OPEN, None, 0

    def word(self, group: str | None, model: str) -> Word:
        return self.words.setdefault((group, model), Word())

    # ---- what an attempt teaches ----

    def granted(self, level: int, now_ns: int) -> Sample:
        """An attempt begins, itself among those in flight."""
        sample = Sample(now_ns, level)
        if self.circuit is Circuit.CLOSED:
            self.samples.append(sample)
        return sample

    def began(self, sample: Sample, told: LimitChanged | None, now_ns: int, *, probe: bool) -> None:
        """Its answer began, and is no error. The limit and the circuit are what was told, if anything was."""
        self.probes += probe
        is_well = probe and self.probes >= self.breaker.probes
        circuit = told.circuit if told is not None else self.circuit
        assert circuit is (Circuit.CLOSED if is_well else self.circuit), "a circuit closes when its probes succeed"
        if sample in self.samples:
            self._served(sample, now_ns)
        self._told(told, is_well, raises=True, lowers=False, now_ns=now_ns)
        if not is_well and sample in self.samples:
            self._disproved(sample, now_ns)

    def learn(
        self,
        ended: AttemptResult,
        sample: Sample,
        told: LimitChanged | None,
        *,
        probe: bool,
        now_ns: int,
        inflight: int,
        others: int,
    ) -> None:
        """Check what the end of an attempt has come to.

        Args:
            told: What was said of it; None: nothing has changed.
            inflight: With the one that has ended.
            others: Attempts in flight whose answers have begun, without it.
        """
        outcome, before, sample.ended = ended.outcome, self.circuit, True
        teaches = before is Circuit.CLOSED and sample in self.samples
        after = told.circuit if told is not None else before
        assert after in self._may(outcome, sample, now_ns, probe=probe, others=others), (
            f"{before} becomes {after} by {outcome}"
        )
        closes, opens = before is Circuit.HALF_OPEN and after is Circuit.CLOSED, after is Circuit.OPEN is not before
        if teaches and outcome in LOWERS:
            self.lowered.append((now_ns, outcome))
        if opens:
            self.lowered.append((now_ns, None))
        refused = outcome in REFUSING and not teaches
        # A client that has waited for its content in vain says as much as a refusal.
        left = outcome is Outcome.IGNORED and sample.failed is None and now_ns - sample.granted_ns >= ABANDONED_NS
        self._told(
            told,
            closes,
            raises=outcome is Outcome.SUCCEEDED or any(each[1] in REFUSING for each in self.lowered),
            lowers=(outcome in LOWERS and not refused) or (left and teaches),
            now_ns=now_ns,
        )
        if outcome is Outcome.CONCURRENCY and teaches and self.aimd is not None:
            assert self.limit <= max(self.aimd.low, inflight - 1), "what remains in flight is all that is accepted"
        if opens:
            self._open(ended, now_ns)

    def _told(self, told: LimitChanged | None, closes: bool, *, raises: bool, lowers: bool, now_ns: int) -> None:
        here, limit = self.limit, told.limit if told is not None else self.limit
        low, high = self.bounds
        assert low <= limit <= high, "the limit keeps within the policy's bounds"
        if closes and self.aimd is not None:
            assert limit <= max(low, self.most // 2), "after an outage it goes on with half at most"
            self.lowered.append((now_ns, None))
        else:
            assert limit <= here or raises, "nothing but a success, or the end of a cap, raises the limit"
            assert limit >= here or lowers, "only a closed circuit, and measurements, lower the limit"
        self.limit = limit
        self.most = max(self.most, limit)
        if closes:
            self.circuit, self.samples, self.failed_probe = Circuit.CLOSED, [], None

    def _disproved(self, sample: Sample, now_ns: int) -> None:
        """An attempt that is accepted disproves a cap below what was in flight when it was granted."""
        since = [each for each in self.lowered if each[0] > now_ns - CAP_MAX_NS]
        if self.aimd is None or not since or any(outcome is not Outcome.CONCURRENCY for _, outcome in since):
            return
        if since[0][0] > sample.granted_ns and since[-1][0] < since[0][0] + CAP_NS:
            assert self.limit >= min(sample.level, self.high), "it was accepted, so there is no cap below it"

    def _may(self, outcome: Outcome, sample: Sample, now_ns: int, *, probe: bool, others: int) -> tuple[Circuit, ...]:
        """Return what the circuit may be after it."""
        if self.circuit is Circuit.HALF_OPEN and probe:
            if outcome in BROKEN:
                return (Circuit.OPEN,)
            self.probes += outcome in HEALTHY
            return (Circuit.CLOSED,) if self.probes >= self.breaker.probes else (Circuit.HALF_OPEN,)
        if self.circuit is not Circuit.CLOSED or sample not in self.samples:
            return (self.circuit,)
        if outcome in HEALTHY:
            self._served(sample, now_ns)
        elif outcome in BROKEN and not (outcome is Outcome.OVERLOADED and others):
            sample.overloaded = outcome is Outcome.OVERLOADED and sample.failed is None
            sample.failed, sample.known_ns = True, now_ns
        if not sample.failed:
            return (Circuit.CLOSED,)
        known = [each for each in self.samples if each.failed is not None]
        latest = known[-min(self.breaker.of, BREAKER_MEMORY) :]
        latest = [each for each in latest if each.known_ns > now_ns - self.breaker.over_ns]
        latest = [each for each in latest if not (each.failed and each.overloaded and self._serves(each, now_ns))]
        if all(each.sure for each in self.samples):
            return (Circuit.OPEN,) if self._trips(latest) else (Circuit.CLOSED,)
        # A policy with other settings has dropped some of them.
        return (Circuit.OPEN, Circuit.CLOSED)

    def _served(self, sample: Sample, now_ns: int) -> None:
        """An attempt was answered: what was refused after its grant was one too many at once."""
        sample.failed, sample.known_ns = False, now_ns
        for each in self.samples:
            if each.overloaded and each.granted_ns >= sample.granted_ns:
                each.failed = False

    def _serves(self, refused: Sample, now_ns: int) -> bool:
        """True if an attempt in flight may be what the provider serves instead of this one."""
        return any(
            not each.ended and now_ns - SERVED_MAX_NS < each.granted_ns <= refused.granted_ns for each in self.samples
        )

    def _trips(self, samples: list[Sample]) -> bool:
        failed = sum(each.failed is True for each in samples)
        known = [each.failed for each in samples if each.failed is not None]
        return failed >= max(1, ceil(self.breaker.trip * self.breaker.of)) or (
            len(known) >= IN_A_ROW and all(known[-IN_A_ROW:])
        )

    def _open(self, ended: AttemptResult, now_ns: int) -> None:
        shortest_ns = min(SECOND_NS, self.breaker.open_ns)
        asked_ns = min(ended.retry_after_ns or 0, OPEN_MAX_NS)
        self.circuit, self.opens_ns, self.samples, self.probes = Circuit.OPEN, None, [], 0
        self.to_open_ns = (
            now_ns + max(int(0.8 * shortest_ns), asked_ns),
            now_ns + max(int(1.2 * self.breaker.open_ns), asked_ns),
        )

    def opened(self, opens_ns: int) -> None:
        """The snapshot says when it will let a probe through."""
        assert self.to_open_ns[0] <= opens_ns <= self.to_open_ns[1]
        self.opens_ns = opens_ns

    # ---- money ----

    def pay(self, model: str, ended: AttemptResult, granted_ns: int, now_ns: int) -> None:
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

    def pays(self, ended: AttemptResult) -> bool:
        """True if a retry is taken from the budget: nothing else holds it back."""
        return ended.outcome not in TURNED_AWAY and self.circuit is Circuit.CLOSED

    @staticmethod
    def borrows(ended: AttemptResult) -> int:
        """Retries that may be taken before they are earned: for failures of the provider."""
        return BORROWED if ended.outcome in BROKEN else 0

    @staticmethod
    def must(ended: AttemptResult) -> bool:
        """True if a retry is borrowed however many wait: only the proxy can try again."""
        return ended.headed and ended.outcome in BROKEN

    def take(self, ended: AttemptResult) -> None:
        """Take a retry; those that are borrowed add up to no more than the bound."""
        if self.pays(ended):
            self.budget = max(self.budget - 1, Fraction(-BORROWED))

    def earned_ns(self, now_ns: int) -> Range:
        """Between when the next retry is there that nobody waits for yet."""
        left_ns = min(Fraction(BORROWED + 1), 1 - self.budget) * EARNS_NS
        return now_ns + max(0, int(left_ns - ROUNDED * EARNS_NS)), now_ns + max(0, ceil(left_ns + ROUNDED * EARNS_NS))

    def rest(self, retry: RetrySettings, ended: AttemptResult, attempts: Range, now_ns: int) -> Range | None:
        """Between when the next attempt may be due; None: there is no retry left for it.

        Args:
            attempts: That count, at least and at most.
        """
        self.earn(now_ns)
        if self.pays(ended) and not self.must(ended) and self.budget - 1 < -self.borrows(ended) - ROUNDED:
            return None
        return now_ns + pause(retry, ended, attempts[0])[0], now_ns + pause(retry, ended, attempts[1])[1]


def pause(retry: RetrySettings, ended: AttemptResult, attempt: int) -> Range:
    """What the provider asked for and up to a tenth more, or a back-off that doubles; 20 s at the most.

    A call that was refused for going too often waits in line, for its gate says when; of what the provider asked for,
    one beyond a limit on concurrent requests waits a second at most.
    """
    if ended.outcome in TOO_OFTEN:
        return 0, 0
    if ended.retry_after_ns is not None:
        low_ns, high_ns = ended.retry_after_ns, int(1.1 * ended.retry_after_ns)
    else:
        most_ns = min(retry.last_ns, retry.first_ns * 2 ** (attempt - 1))
        low_ns, high_ns = {Jitter.NONE: most_ns, Jitter.EQUAL: most_ns // 2, Jitter.FULL: 0}[retry.jitter], most_ns
    said = ended.retry_after_ns is not None
    longest_ns = SECOND_NS if said and ended.outcome is Outcome.CONCURRENCY else OBEYED_NS
    return min(low_ns, longest_ns), min(high_ns, longest_ns)
