"""Gate of one lane's calls of one model and account: what `plan` of their provider lets through now.

Without a reading of the account nothing waits. A gate that has closed opens when its window begins anew, or for a paced
lane when the elapsed share has come up to the used one, or when an answer tells of less.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import PlanSpan, Reason
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy import PlanOverage, PlanSettings
from hivemind_trio.scheduler.protocol.plan import PlanWindowState

from .plan_accounts import PlanAccounts

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

    def opens_ns(self, now_ns: int) -> int:
        """Return when such a call may go as far as the plan is concerned: `now_ns` or later."""
        return self._state(now_ns)[0]

    def reason(self, now_ns: int) -> Reason:
        """Return why none goes now; `NONE`: the plan lets them go."""
        return self._state(now_ns)[1]

    def _state(self, now_ns: int) -> tuple[int, Reason]:
        """Return the latest time at which a window opens, and for what it is closed."""
        at_ns, reason = now_ns, Reason.NONE
        pays = self.settings.overage is PlanOverage.DENY and self.plans.pays(self.account)
        for window in self.plans.windows(self.account, self.model):
            opens_ns, closed = self._window(window, now_ns, pays=pays)
            if opens_ns > at_ns:
                at_ns, reason = opens_ns, closed
        return at_ns, reason

    def _window(self, window: PlanWindowState, now_ns: int, *, pays: bool) -> tuple[int, Reason]:
        used, span = window.used_at(now_ns), window.span
        anew_ns = window.resets_ns if window.resets_ns is not None else window.read_ns + UNKNOWN_NS
        if self.settings.overage is PlanOverage.DENY and (used >= WHOLE or (pays and self._is_fullest(window, now_ns))):
            return anew_ns, Reason.PLAN_USED_UP
        most = self.settings.most(self.lane, span)
        if used > most or (most < WHOLE and used == most):
            return anew_ns, Reason.PLAN_RESERVE
        if self.settings.is_paced(self.lane, span) and window.resets_ns is not None:
            # Even pace: the used share is no more than the elapsed one.
            began_ns = window.resets_ns - window.window_ns
            return began_ns + window.window_ns * used // WHOLE, Reason.PLAN_PACE
        return now_ns, Reason.NONE

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
        settings.most(lane, span) < WHOLE or settings.is_paced(lane, span) for span in PlanSpan
    )
    return PlanGate(settings, plans, lane, account, model) if holds else None
