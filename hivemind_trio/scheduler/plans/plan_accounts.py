"""Plans of the accounts at one provider, as answers tell of them.

An account is the credential that is sent upstream: the provider's key, or each caller's own. A reading holds for the
credential that its call was sent with, and for no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import attrs

from hivemind_trio.model import NO_PLAN, PlanReading, PlanSpan, PlanStanding, PlanUse
from hivemind_trio.model.plan import WHOLE
from hivemind_trio.policy import PlanReserve, Renames
from hivemind_trio.scheduler.protocol.plan import PlanBelief, PlanCrossing, PlanWindowState

from .pace_line import PaceLine
from .plan_consumption import ConsumptionLearner
from .plan_history import PlanHistory

ACCOUNTS_MAX: Final = 1_024
"""Credentials are callers' words: beyond it the account that was read longest ago is forgotten."""

CROSSED: Final = (500_000, 750_000, 900_000, 950_000, 1_000_000)
"""Used shares, in millionths, that are worth a line in the log."""

STEP: Final = 1_000
"""Change of a used share, in millionths, that is news; providers round to 1 %."""

HISTORIES_MAX: Final = 32
"""Accounts whose hours are kept beyond the end of the process."""

LEARNERS_MAX: Final = 32
"""Windows of one account: their names are the provider's words."""

WEIGHED: Final = 0.05
"""Weight of a new call in the mean of what calls weigh."""

SAME_NS: Final = 60 * 1_000_000_000
"""Two resets of one window are as far apart at most: they are rounded, and clocks differ."""


@final
@attrs.define
class _PlanAccount:
    history: PlanHistory
    windows: tuple[PlanWindowState, ...] = ()
    overage: bool = False
    learners: dict[str, ConsumptionLearner] = attrs.field(factory=dict)
    """By the name of the window."""
    lines: dict[tuple[str, float], PaceLine] = attrs.field(factory=dict)
    """By the name of the window, and by `burst`."""
    changes: int = 0
    """Readings, and calls that began or ended: what is estimated holds until the next."""

    def learner(self, window: str) -> ConsumptionLearner:
        """Return what learns the consumption of a window."""
        found = self.learners.get(window)
        if found is None:
            if len(self.learners) >= LEARNERS_MAX:
                self.learners.clear()
            found = self.learners[window] = ConsumptionLearner()
        return found

    def learn(self, window: PlanWindowState, *, anew: bool) -> None:
        """Take a reading of a window."""
        self.changes += 1
        self.learner(window.name).on_read(window.used, anew=anew)
        for (name, _), line in self.lines.items():
            if name == window.name:
                line.on_read(window.used, window.read_ns, anew=anew)

    def counting(self, model: str) -> Iterator[ConsumptionLearner]:
        """Yield what learns of windows that count calls of a model."""
        for window in self.windows:
            if window.models in model.lower():
                yield self.learner(window.name)


@final
@attrs.define(eq=False)
class PlanAccounts:
    """Plan of each account of one provider."""

    _accounts: dict[str, _PlanAccount] = attrs.field(factory=dict, init=False)
    """The one that was read longest ago first."""
    _weighed: float = attrs.field(default=1.0, init=False)
    """Real weight of a call for each unit that was expected: prompts are cached."""

    def on_read(
        self, account: str, reading: PlanReading, now_ns: int
    ) -> tuple[tuple[PlanWindowState, ...], tuple[PlanCrossing, ...]] | None:
        """Take a reading; return the windows of now and the shares that were crossed, or None: nothing is new."""
        known = self._accounts.pop(account, None) or _PlanAccount(PlanHistory(now_ns))
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
        for name, window in told.items():
            known.learn(window, anew=(old := before.get(name)) is None or _is_another(old, window, now_ns))
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

    @property
    def known(self) -> bool:
        """True if any account has a plan, so that calls are weighed."""
        return bool(self._accounts)

    def on_granted(self, account: str, model: str, expected: float) -> float:
        """Count a call that is sent; return the weight that it is expected to have."""
        known = self._accounts.get(account)
        if known is None:
            return 0.0
        expected *= self._weighed
        known.changes += 1
        for learner in known.counting(model):
            learner.on_granted(expected)
        return expected

    def on_ended(self, account: str, model: str, lane: str, expected: float, weight: float, now_ns: int) -> None:
        """Count a call that has ended.

        Args:
            expected: What `on_granted` returned.
            weight: What it was; 0: it has used nothing.
        """
        known = self._accounts.get(account)
        if known is None:
            return
        known.changes += 1
        for learner in known.counting(model):
            learner.on_ended(expected, weight)
        if weight:
            known.history.add(lane, weight, now_ns)
            if expected:
                sample = self._weighed * weight / expected
                self._weighed += WEIGHED * (min(4.0, max(0.02, sample)) - self._weighed)

    def on_refused(self, account: str, lane: str, expected: float, now_ns: int) -> None:
        """Count a call that is refused for a used-up plan, by the weight that it was expected to have."""
        known = self._accounts.get(account)
        if known is not None:
            known.history.lack(lane, expected * self._weighed, now_ns)
            known.changes += 1

    def changes(self, account: str) -> int:
        """Return a number that is another one once anything of an account may have changed."""
        known = self._accounts.get(account)
        return known.changes if known is not None else 0

    def estimated(self, account: str, window: PlanWindowState, now_ns: int) -> int:
        """Return the used share of a window: as it was read, and what has been used since."""
        known = self._accounts.get(account)
        learner = known.learners.get(window.name) if known is not None else None
        return window.used_at(now_ns) + (learner.unread() if learner is not None else 0)

    def paced_ns(self, account: str, window: PlanWindowState, burst: float, now_ns: int) -> int:
        """Return when a lane that catches up may go: a window grows at `burst` times the even rate at most."""
        known = self._accounts[account]
        line = known.lines.get((window.name, burst))
        if line is None:
            if len(known.lines) >= LEARNERS_MAX:
                known.lines.clear()
            line = PaceLine(window.used_at(now_ns), now_ns, burst * WHOLE / window.window_ns)
            known.lines[window.name, burst] = line
        return line.opens_ns(self.estimated(account, window, now_ns), now_ns)

    def wanted(self, account: str, window: PlanWindowState, reserve: PlanReserve, now_ns: int, from_ns: int) -> float:
        """Return the share of a window that the lanes of a reserve may want from a time until its reset.

        All of the reserve, as long as nothing has been learned of them.
        """
        assert window.resets_ns is not None
        known = self._accounts.get(account)
        learner = known.learners.get(window.name) if known is not None else None
        learned = learner.learned if learner is not None else None
        if known is None or learned is None or not known.history.knows(reserve.lanes, now_ns):
            return reserve.share
        return learned * known.history.expected(reserve.lanes, now_ns, from_ns, window.resets_ns)

    def rename(self, renames: Renames) -> None:
        """Take the new names of a policy."""
        for known in self._accounts.values():
            known.history.rename(renames)

    def beliefs(self, now_ns: int) -> tuple[PlanBelief, ...]:
        """Return what is known, to be kept; times are from now."""
        told = len(self._accounts) - HISTORIES_MAX
        return tuple(
            PlanBelief(
                account=account,
                overage=known.overage,
                consumption={
                    name: learner.learned for name, learner in known.learners.items() if learner.learned is not None
                },
                watched_ns=now_ns - known.history.since_ns,
                hours=known.history.ages(now_ns) if number >= told else {},
                sizes=known.history.sizes if number >= told else {},
                windows=tuple(
                    attrs.evolve(window, resets_ns=None if window.resets_ns is None else window.resets_ns - now_ns)
                    for window in known.windows
                    if _holds(window, now_ns)
                ),
            )
            for number, (account, known) in enumerate(self._accounts.items())
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
            if not windows and not belief.hours:
                continue
            history = PlanHistory(now_ns - age_ns - belief.watched_ns if belief.hours else now_ns)
            history.restore(belief.hours, belief.sizes, age_ns, now_ns)
            known = self._accounts[belief.account] = _PlanAccount(history, windows, belief.overage and bool(windows))
            for name, share in belief.consumption.items():
                known.learner(name).learned = share

    def __iter__(self) -> Iterator[str]:
        """Yield the accounts that have been read."""
        return iter(self._accounts)


def _holds(window: PlanWindowState, now_ns: int) -> bool:
    return window.resets_ns is None or window.resets_ns > now_ns


def _is_news(before: PlanWindowState | None, window: PlanWindowState, now_ns: int) -> bool:
    return before is None or _is_another(before, window, now_ns) or before.used // STEP != window.used // STEP


def _is_another(before: PlanWindowState, window: PlanWindowState, now_ns: int) -> bool:
    """Return True if a window has begun anew since, or its reset has moved."""
    if not _holds(before, now_ns):
        return True
    if before.resets_ns is None or window.resets_ns is None:
        return before.resets_ns is not window.resets_ns
    return abs(before.resets_ns - window.resets_ns) > SAME_NS


def _crossed(before: PlanWindowState | None, window: PlanWindowState, now_ns: int) -> int | None:
    """Return the highest share that a reading is the first to be above; None: there is none."""
    used = 0 if before is None else before.used_at(now_ns)
    return max((share for share in CROSSED if used < share <= window.used), default=None)
