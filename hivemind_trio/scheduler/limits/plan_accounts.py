"""Plans of the accounts at one provider, as answers tell of them.

An account is the credential that is sent upstream: the provider's key, or each caller's own. A reading holds for the
credential that its call was sent with, and for no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import attrs

from hivemind_trio.model import NO_PLAN, PlanReading, PlanSpan, PlanStanding, PlanUse
from hivemind_trio.scheduler.protocol.plan import PlanBelief, PlanCrossing, PlanWindowState

ACCOUNTS_MAX: Final = 1_024
"""Credentials are callers' words: beyond it the account that was read longest ago is forgotten."""

CROSSED: Final = (500_000, 750_000, 900_000, 950_000, 1_000_000)
"""Used shares, in millionths, that are worth a line in the log."""

STEP: Final = 1_000
"""Change of a used share, in millionths, that is news; providers round to 1 %."""

SAME_NS: Final = 60 * 1_000_000_000
"""Two resets of one window are as far apart at most: they are rounded, and clocks differ."""


@final
@attrs.define
class _PlanAccount:
    windows: tuple[PlanWindowState, ...] = ()
    overage: bool = False


@final
@attrs.define(eq=False)
class PlanAccounts:
    """Plan of each account of one provider."""

    _accounts: dict[str, _PlanAccount] = attrs.field(factory=dict, init=False)
    """The one that was read longest ago first."""

    def on_read(
        self, account: str, reading: PlanReading, now_ns: int
    ) -> tuple[tuple[PlanWindowState, ...], tuple[PlanCrossing, ...]] | None:
        """Take a reading; return the windows of now and the shares that were crossed, or None: nothing is new."""
        known = self._accounts.pop(account, None) or _PlanAccount()
        self._accounts[account] = known
        if len(self._accounts) > ACCOUNTS_MAX:
            del self._accounts[next(iter(self._accounts))]
        before = {window.name: window for window in known.windows}
        told = {
            window.name: PlanWindowState(
                name=window.name,
                span=PlanSpan.of(window.window_ns),
                used=window.used,
                window_ns=window.window_ns,
                resets_ns=None if window.resets_ns is None else now_ns + window.resets_ns,
                models=window.models,
                read_ns=now_ns,
            )
            for window in reading.windows
        }
        # What this answer does not tell of holds until its reset: answers tell of the windows that count their model.
        kept = {name: window for name, window in before.items() if name not in told and _holds(window, now_ns)}
        is_news = known.overage is not reading.overage or any(
            _is_news(before.get(name), window, now_ns) for name, window in told.items()
        )
        known.windows = tuple(sorted((kept | told).values(), key=lambda window: (window.window_ns, window.name)))
        known.overage = reading.overage
        if not is_news:
            return None
        crossed = tuple(
            PlanCrossing(window, share)
            for window in known.windows
            if (share := _crossed(before.get(window.name), window, now_ns)) is not None
        )
        return known.windows, crossed

    def standing(self, account: str, model: str, now_ns: int) -> PlanStanding:
        """Return the plan of an account as it counts for calls of a model; of windows of one span the fullest."""
        known = self._accounts.get(account)
        if known is None:
            return NO_PLAN
        fullest: dict[PlanSpan, PlanWindowState] = {}
        for window in known.windows:
            if window.models in model.lower():
                other = fullest.get(window.span)
                if other is None or window.used_at(now_ns) > other.used_at(now_ns):
                    fullest[window.span] = window
        return PlanStanding(
            uses=tuple(
                PlanUse(
                    span=span,
                    used=window.used_at(now_ns),
                    resets_ns=window.resets_ns - now_ns if _holds(window, now_ns) and window.resets_ns else None,
                )
                for span, window in fullest.items()
            ),
            overage=known.overage,
        )

    def windows(self, account: str, model: str) -> tuple[PlanWindowState, ...]:
        """Return the windows of an account that count calls of a model."""
        known = self._accounts.get(account)
        if known is None:
            return ()
        return tuple(window for window in known.windows if window.models in model.lower())

    def pays(self, account: str) -> bool:
        """Return True if the account pays beyond its plan."""
        known = self._accounts.get(account)
        return known is not None and known.overage

    def beliefs(self, now_ns: int) -> tuple[PlanBelief, ...]:
        """Return what is known, to be kept; times are from now."""
        return tuple(
            PlanBelief(
                account=account,
                overage=known.overage,
                windows=tuple(
                    attrs.evolve(window, resets_ns=None if window.resets_ns is None else window.resets_ns - now_ns)
                    for window in known.windows
                    if _holds(window, now_ns)
                ),
            )
            for account, known in self._accounts.items()
        )

    def restore(self, beliefs: tuple[PlanBelief, ...], age_ns: int, now_ns: int) -> None:
        """Begin with what an earlier process read, as far as its windows have not begun anew since.

        A window without a reset holds no longer than it is long.
        """
        for belief in beliefs[-ACCOUNTS_MAX:]:
            windows = tuple(
                attrs.evolve(window, resets_ns=now_ns + left_ns, read_ns=now_ns)
                for window in belief.windows
                if (left_ns := (window.window_ns if window.resets_ns is None else window.resets_ns) - age_ns) > 0
            )
            if windows:
                self._accounts[belief.account] = _PlanAccount(windows, belief.overage)

    def __iter__(self) -> Iterator[str]:
        """Yield the accounts that have been read."""
        return iter(self._accounts)


def _holds(window: PlanWindowState, now_ns: int) -> bool:
    return window.resets_ns is None or window.resets_ns > now_ns


def _is_news(before: PlanWindowState | None, window: PlanWindowState, now_ns: int) -> bool:
    if before is None or not _holds(before, now_ns):
        return True
    if before.resets_ns is None or window.resets_ns is None:
        moved = before.resets_ns is not window.resets_ns
    else:
        moved = abs(before.resets_ns - window.resets_ns) > SAME_NS
    return moved or before.used // STEP != window.used // STEP


def _crossed(before: PlanWindowState | None, window: PlanWindowState, now_ns: int) -> int | None:
    """Return the highest share that a reading is the first to be above; None: there is none."""
    used = 0 if before is None else before.used_at(now_ns)
    return max((share for share in CROSSED if used < share <= window.used), default=None)
