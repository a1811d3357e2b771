"""Gate of one lane's calls of one model and account: what `plan` of their provider lets through now.

Without a reading of the account nothing waits. A gate that has closed opens when its window begins anew, for a paced
lane when the elapsed share has come up to the used one and its burst is over, when enough of a reserve is released, or
when an answer tells of less.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import PlanSpan, Reason
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy import PlanOverage, PlanRelease, PlanReserve, PlanSettings
from hivemind_trio.scheduler.protocol.plan import PlanWindowState

from .plan_accounts import PlanAccounts

RESOLUTION_NS: Final = 1_000_000_000
"""Resolution of the time at which a reserve is released."""

UNKNOWN_NS: Final = 300 * 1_000_000_000
"""Until a call asks again where the provider does not say when its window begins anew."""


@final
@attrs.define(eq=False)
class PlanGate:
    """State of the account's windows as they count for such calls."""

    settings: PlanSettings
    plans: PlanAccounts
    lane: str
    account: str
    model: str
    _kept_state: tuple[int, int, Reason, bool] = attrs.field(default=(-1, 0, Reason.NONE, True), init=False)
    """The last state: number of changes of the account, when it opens, why it is closed, and if that time is told."""

    def opens_ns(self, now_ns: int) -> int:
        """Return when such a call may go as far as the plan is concerned: `now_ns` or later."""
        return self._state(now_ns)[0]

    def reason(self, now_ns: int) -> Reason:
        """Return why none goes now; `NONE`: the plan lets them go."""
        return self._state(now_ns)[1]

    def is_told(self, now_ns: int) -> bool:
        """Return False if the time at which it opens is no reset of the provider's, but when a call asks again."""
        return self._state(now_ns)[2]

    def _state(self, now_ns: int) -> tuple[int, Reason, bool]:
        """Return the latest time at which a window opens, for what it is closed, and if its reset is told."""
        changes, opens_ns, closed, is_told = self._kept_state
        if now_ns < opens_ns and changes == self.plans.changes(self.account):
            return opens_ns, closed, is_told
        at_ns, reason, is_told = now_ns, Reason.NONE, True
        pays = self.settings.overage is PlanOverage.DENY and self.plans.pays(self.account)
        for window in self.plans.windows(self.account, self.model):
            opens_ns, closed = self._window(window, now_ns, pays=pays)
            if opens_ns > at_ns:
                at_ns, reason, is_told = opens_ns, closed, window.resets_ns is not None
        self._kept_state = self.plans.changes(self.account), at_ns, reason, is_told
        return at_ns, reason, is_told

    def _window(self, window: PlanWindowState, now_ns: int, *, pays: bool) -> tuple[int, Reason]:
        used, span = window.used_at(now_ns), window.span
        anew_ns = window.resets_ns if window.resets_ns is not None else window.read_ns + UNKNOWN_NS
        if self.settings.overage is PlanOverage.DENY and (used >= WHOLE or (pays and self._is_fullest(window, now_ns))):
            return anew_ns, Reason.PLAN_USED_UP
        reserves = self.settings.kept_from(self.lane, span)
        if reserves and self._is_kept(window, reserves, now_ns, now_ns):
            return self._released_ns(window, reserves, now_ns, anew_ns), Reason.PLAN_RESERVE
        pace = self.settings.pace_of(self.lane, span)
        if pace is not None and window.resets_ns is not None:
            # Even pace: the used share is no more than the elapsed one.
            even_ns = window.resets_ns - window.window_ns + window.window_ns * used // WHOLE
            return max(even_ns, self.plans.paced_ns(self.account, window, pace.burst, now_ns)), Reason.PLAN_PACE
        return now_ns, Reason.NONE

    def _is_kept(self, window: PlanWindowState, reserves: tuple[PlanReserve, ...], now_ns: int, from_ns: int) -> bool:
        """Return True if all that is left of a window at a time is kept for others, by what is known now."""
        used = self.plans.estimated(self.account, window, now_ns)
        return used >= WHOLE - sum(self._kept(window, one, now_ns, from_ns) for one in reserves)

    def _kept(self, window: PlanWindowState, reserve: PlanReserve, now_ns: int, from_ns: int) -> int:
        """Return what a reserve keeps of a window from a time on, in millionths."""
        if reserve.release is PlanRelease.NEVER or window.resets_ns is None:
            return reserve.share
        wanted = self.plans.wanted(self.account, window, reserve, now_ns, from_ns)
        return max(0, min(reserve.share, round(wanted)))

    def _released_ns(
        self, window: PlanWindowState, reserves: tuple[PlanReserve, ...], now_ns: int, anew_ns: int
    ) -> int:
        """Return when enough of the reserves is released: what they keep only shrinks until the reset."""
        closed_ns, open_ns = now_ns, anew_ns
        while window.resets_ns is not None and open_ns - closed_ns > RESOLUTION_NS:
            between_ns = (closed_ns + open_ns) // 2
            if self._is_kept(window, reserves, now_ns, between_ns):
                closed_ns = between_ns
            else:
                open_ns = between_ns
        return open_ns

    def _is_fullest(self, window: PlanWindowState, now_ns: int) -> bool:
        """Return True if no other window that counts these calls is fuller: it is the one that is paid for."""
        windows = self.plans.windows(self.account, self.model)
        return window.used_at(now_ns) >= max((one.used_at(now_ns) for one in windows), default=0)


def plan_gate(
    settings: PlanSettings | None, plans: PlanAccounts, lane: str, account: str, model: str
) -> PlanGate | None:
    """Return the gate of such calls; None: the policy keeps nothing from them."""
    if settings is None:
        return None
    holds = settings.overage is PlanOverage.DENY or any(
        settings.kept_from(lane, span) or settings.pace_of(lane, span) is not None for span in PlanSpan
    )
    return PlanGate(settings, plans, lane, account, model) if holds else None
