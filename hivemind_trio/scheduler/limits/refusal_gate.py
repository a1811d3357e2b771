"""Gate of one limits group: what refusals say about when the next call may go, and the probes that test it.

A refusal closes the gate for as long as the provider asks, and starts a learned rate (`learned_rate.py`). Nothing else
closes it. While calls wait and none is in flight, a probe goes sooner than that: providers that name a wrong time are
found out by one call, and a wait that nobody checks is the one failure that a fleet does not survive.

A refusal is about the moment at which it was given. When a call that was in flight then has ended, the provider may
have room again: what it had set aside for the longest answer comes back (Anthropic, "Rate limits": output tokens are
estimated from `max_tokens` and adjusted at the end), or the refusal was about calls at once and did not say so. Such an
end lets one call go, as an acknowledgement does in TCP (Jacobson, "Congestion avoidance and control", 1988). Where the
calls that go so are refused, ever more ends are passed over.

Where one is accepted, the time that the provider named is in doubt: it may be wrong, and then as many calls as were in
flight at the refusal go for all of that time. So one more goes as a test, though others are in flight. If it is
accepted, the time was wrong. If it is refused, the next test goes after twice as long.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.scheduler.protocol.call import CallId

from .learned_rate import LearnedRate, jittered
from .refused_accounts import RefusedAccounts

SECOND_NS: Final = 1_000_000_000

OBEYED_NS: Final = 20 * SECOND_NS
"""A `retry-after` up to this is obeyed to the second; a longer one is probed."""
PROBE_EVERY_NS: Final = 5 * SECOND_NS
LONG_NS: Final = 600 * SECOND_NS
PROBE_LONG_EVERY_NS: Final = 300 * SECOND_NS
"""The same under a reset that is more than ten minutes away: a plan's window, or a day's."""
PROBE_NS: Final = (2 * SECOND_NS, 3 * SECOND_NS, 4 * SECOND_NS, 5 * SECOND_NS)
"""Time since the last grant or end, by the number of probes refused in a row, where only a forecast says to wait."""
SOON_NS: Final = 5 * SECOND_NS
"""A forecast of room within this is waited for: to test it would cost a refusal of every truthful provider."""

LIES_MAX_NS: Final = SECOND_NS
"""Longest `retry-after` that is believed once a probe has succeeded before one was over."""
BELIEVED_AFTER: Final = 3
"""Probes refused in a row before the time that the provider named is over: then it is believed again."""
DROPPED_AFTER: Final = 2
"""Successful probes in a row that prove a forecast wrong."""

TURNED_NS: Final = 5 * SECOND_NS
"""After a wait of so long a window has probably turned: the rate of the one before says nothing."""
TURNED_ALLOW: Final = 4
PROBED_ALLOW: Final = 2
ALLOW_MAX: Final = 64
"""Calls in flight from which on none are limited here."""
RECHECK_NS: Final = SECOND_NS

TEST_MAX_NS: Final = 64 * SECOND_NS
"""Longest time between two tests of a doubted word while others are in flight."""

ENDS_MAX: Final = 64
"""Ends that are passed over between two calls which go because another has ended, where such calls are refused."""


@final
@attrs.define(eq=False)
class RefusalGate:
    """Hold, learned rate and probes of one limits group."""

    active: bool = attrs.field(default=False, init=False)
    """The provider has refused a call, so the gate may restrict dispatch."""
    rate: LearnedRate = attrs.field(factory=LearnedRate, init=False)
    accounts: RefusedAccounts = attrs.field(factory=RefusedAccounts, init=False)
    """Shared with the gates of the other accounts that may turn out to share limits."""
    until_ns: int = attrs.field(default=0, init=False)
    """End of the hold."""
    lies: bool = attrs.field(default=False, init=False)
    """A probe succeeded before the time that the provider had named."""
    _is_doubted: bool = attrs.field(default=False, init=False)
    """A call that went because another had ended was accepted before that time, and none has been refused since."""
    misses: int = attrs.field(default=0, init=False)
    """Probes and tests of the provider's word refused in a row. Those granted together count as one."""
    _missed_ns: int = attrs.field(default=-1, init=False)
    """When the last of them was refused."""
    allow: int | None = attrs.field(default=None, init=False)
    """Limit on calls in flight while the gate reopens; None: no limit."""
    inflight: int = attrs.field(default=0, init=False)
    evidence_ns: int = attrs.field(default=0, init=False)
    """Time of the last grant or end."""
    _granted_ns: int = attrs.field(default=-1, init=False)
    """Time of the last grant."""
    _word_ns: int = attrs.field(default=0, init=False)
    """Time until which the provider asked to wait, by its latest refusal."""
    _claimed_ns: int = attrs.field(default=0, init=False)
    """The same by any of its refusals since the last success, believed or not."""
    _said_ns: int = attrs.field(default=0, init=False)
    """Length of that wait."""
    _shut_ns: int | None = attrs.field(default=None, init=False)
    """Time of the first refusal since the last success; None: none has been refused since."""
    _refused_ns: int = attrs.field(default=0, init=False)
    """Time of the latest refusal."""
    _tested_ns: int = attrs.field(default=0, init=False)
    """Time of the provider's latest word, or of its latest test."""
    _test_every_ns: int = attrs.field(default=PROBE_NS[0], init=False)
    """Time from then to the next test while others are in flight: doubled with each that is refused."""
    _tests: dict[CallId, None] = attrs.field(factory=dict, init=False)
    """Calls in flight that went before the time that the provider had named: they test its word, probes or not."""
    _probes: dict[CallId, None] = attrs.field(factory=dict, init=False)
    _proved: int = attrs.field(default=0, init=False)
    """Probes that succeeded in a row."""
    _ends_return: bool = attrs.field(default=True, init=False)
    """True if the quota of the latest refusal may come back when a call ends."""
    _released: int = attrs.field(default=0, init=False)
    """Calls that may go because others have ended that were in flight at the latest refusal."""
    _clocked: dict[CallId, None] = attrs.field(factory=dict, init=False)
    """Calls in flight that went so."""
    _ends_passed: int = attrs.field(default=0, init=False)
    """Ends to be passed over before the next call goes so."""
    _ends_useless: int = attrs.field(default=0, init=False)
    """Ends to be passed over after such a call: doubled with each that is refused, halved with each accepted."""

    def opens_ns(self, now_ns: int) -> int:
        """Return when the next call may go by refusals alone: `now_ns` or later."""
        if not self.active:
            return now_ns
        until_ns = self.until_ns
        if self._is_doubted and self.inflight and not self._tests:
            until_ns = min(until_ns, self._tested_ns + self._test_every_ns)  # a test
        at_ns = max(now_ns, until_ns, self.rate.opens_ns)
        if (self.allow is not None and self.inflight >= self.allow) or (self.misses and self._tests):
            at_ns = max(at_ns, now_ns + RECHECK_NS)  # or when one ends
        if self.accounts.restricts(self):
            at_ns = max(at_ns, self.accounts.opens_ns(self))
        return now_ns if self._released else at_ns

    def probe_ns(self, opens_ns: int, now_ns: int) -> int:
        """Return when a probe may go although dispatch waits until `opens_ns`; `opens_ns` if there is to be none."""
        if self.inflight:
            return opens_ns
        probe_ns = self._alone_ns(opens_ns, now_ns)
        return min(opens_ns, max(probe_ns, self.accounts.opens_ns(self))) if self.accounts.restricts(self) else probe_ns

    def _alone_ns(self, opens_ns: int, now_ns: int) -> int:
        """Return the same where no other account is refused."""
        has_said = self._shut_ns is not None and 0 < self._said_ns <= OBEYED_NS and self._granted_ns < self._word_ns
        if has_said and not self.misses and not self.lies:
            return max(now_ns, min(opens_ns, self._word_ns))  # nothing has shown yet that it is wrong
        if opens_ns <= self.evidence_ns + SOON_NS:
            return opens_ns
        soft_ns = self.evidence_ns + jittered(PROBE_NS[min(self.misses, len(PROBE_NS) - 1)], self.misses)
        if self._word_ns <= now_ns or self.lies or self._is_doubted:
            return max(now_ns, min(opens_ns, soft_ns))
        if self._said_ns <= OBEYED_NS:
            return max(now_ns, min(opens_ns, self._word_ns))
        every_ns = PROBE_LONG_EVERY_NS if self._word_ns - now_ns > LONG_NS else PROBE_EVERY_NS
        return max(now_ns, min(opens_ns, max(soft_ns, self.evidence_ns + every_ns)))

    def is_probe(self, call_id: CallId) -> bool:
        """Return True if this call in flight was let through before its time."""
        return call_id in self._probes

    def on_granted(self, call_id: CallId, *, probe: bool, now_ns: int) -> None:
        """Count a call; the first one after a long hold starts a new window."""
        if self._released and not probe:
            released, self._released = self._released, 0
            is_shut = self.opens_ns(now_ns) > now_ns
            self._released = released - 1 if is_shut else 0  # once the gate is open they are old news
            if is_shut:
                self._clocked[call_id] = None
                self.inflight += 1
                return
        self.inflight += 1
        self.evidence_ns = self._granted_ns = now_ns
        self.accounts.on_granted(self, now_ns)
        if probe:
            self._probes[call_id] = None
        elif 0 < self.until_ns <= now_ns:
            held_ns, self.until_ns = self.until_ns - self._refused_ns, 0
            if held_ns >= TURNED_NS:
                self._turn(now_ns)
        if now_ns < max(self._claimed_ns, self.until_ns):
            self._tests[call_id], self._tested_ns = None, now_ns
        self.rate.on_granted(now_ns)

    def on_good(self, call_id: CallId, granted_ns: int, now_ns: int) -> bool:
        """Learn that a call was accepted. Return True if a forecast that said otherwise is to be dropped."""
        dropped = False
        if call_id in self._clocked:
            self._ends_useless //= 2  # not 0: room may have come back by itself
            self._ends_passed = min(self._ends_passed, self._ends_useless)
            self._is_doubted = True
            return False
        self.rate.on_good(granted_ns, now_ns)
        if call_id in self._tests and self._refused_ns < granted_ns < self.until_ns:
            self.lies |= self._word_ns > now_ns
            self.until_ns = self._word_ns = 0
            self._test_every_ns = PROBE_NS[0]
        if call_id in self._probes:
            del self._probes[call_id]
            if self._word_ns > now_ns:
                self.lies = True
            self.until_ns = self._word_ns = 0
            self.allow = PROBED_ALLOW
            self.active = True
            self._proved += 1
            dropped = self._proved >= DROPPED_AFTER
            if dropped:
                self.rate.double(granted_ns)
        self.misses = self._claimed_ns = 0
        self._turn(now_ns)
        self._shut_ns = None
        if self.allow is not None:
            self.allow += 1
            if self.allow > ALLOW_MAX:
                self.allow = None
        return dropped

    def on_refused(
        self, call_id: CallId, said_ns: int, granted_ns: int, now_ns: int, *, ends_return: bool = True
    ) -> None:
        """Close for as long as the provider asks, and lower the rate.

        Args:
            said_ns: Its `retry-after`, or the reset of what is used up; 0: it named no time.
            granted_ns: When the call was dispatched.
            ends_return: False if what is used up does not come back when a call ends.
        """
        self.active = True
        self._released, self._is_doubted = 0, False
        if call_id in self._clocked:  # it went before the time that is known, and says nothing new of it
            self._ends_useless = self._ends_passed = min(ENDS_MAX, 2 * self._ends_useless + 1)
            return
        self._proved, self._ends_return = 0, ends_return
        if call_id in self._tests and call_id not in self._probes:
            self._test_every_ns = min(2 * self._test_every_ns, TEST_MAX_NS)
        if call_id in self._probes or (call_id in self._tests and granted_ns > self._missed_ns):
            self.misses, self._missed_ns = self.misses + 1, now_ns
            if self.misses >= BELIEVED_AFTER and now_ns < self._claimed_ns:
                self.lies = False
        self._claimed_ns = max(self._claimed_ns, now_ns + said_ns)
        if self.lies:
            said_ns = min(said_ns, LIES_MAX_NS)
        self.allow = None
        if now_ns + said_ns >= self._word_ns:
            self._word_ns, self._said_ns = now_ns + said_ns, said_ns
        if now_ns + said_ns > self.until_ns:
            self.until_ns = now_ns + said_ns
        self._refused_ns = self._tested_ns = now_ns
        if self._shut_ns is None:
            self._shut_ns = now_ns
        self.accounts.on_refused(self, granted_ns, now_ns)
        self.rate.on_refused(granted_ns, now_ns)

    def _turn(self, now_ns: int) -> None:
        """Forget the rate if nothing was accepted for long: it was of a window that has turned since."""
        if self._shut_ns is not None and now_ns - self._shut_ns >= TURNED_NS and self.rate.per_s is not None:
            self.rate.clear()
            self.allow = TURNED_ALLOW

    def on_ended(self, call_id: CallId, now_ns: int, *, served_from_ns: int | None = None) -> None:
        """Count a call off; where it has been served, another may go in its place.

        Args:
            served_from_ns: When it was dispatched; None: it was not served.
        """
        self.inflight -= 1
        self.evidence_ns = now_ns
        self._probes.pop(call_id, None)
        self._tests.pop(call_id, None)
        is_clocked = self._clocked.pop(call_id, 0) is None
        if served_from_ns is None or not (self.active and self._ends_return):
            return
        if served_from_ns >= now_ns or (not is_clocked and served_from_ns > self._refused_ns):
            return  # an answer that took no time has set nothing aside
        if self._ends_passed:
            self._ends_passed -= 1
        else:
            self._released += 1
