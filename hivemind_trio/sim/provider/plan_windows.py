"""Plan of a simulated account: fixed windows that count tokens and are reported in whole percents."""

from __future__ import annotations

from typing import Final, final

import attrs

from hivemind_trio.model import PlanReading, PlanSpan, PlanWindow
from hivemind_trio.model.plan import DAY_NS, HOUR_NS, WHOLE

STEP: Final = WHOLE // 100
"""Resolution of the headers."""

CACHED_AS: Final = 10
"""So many tokens that are read from the cache count as one."""

EVERY_NS: Final = {PlanSpan.SESSION: 5 * HOUR_NS, PlanSpan.WEEK: 7 * DAY_NS, PlanSpan.MONTH: 30 * DAY_NS}
"""Usual length of a window."""


@final
@attrs.frozen(kw_only=True)
class PlanLimit:
    """One window of a plan: `plan session tokens 20M used 10% resets 3h`."""

    span: PlanSpan
    tokens: int = attrs.field(validator=attrs.validators.gt(0))
    """Tokens of a whole window, of prompts and answers."""
    every_ns: int = attrs.field(validator=attrs.validators.gt(0))
    used: int = attrs.field(default=0, validator=[attrs.validators.ge(0), attrs.validators.le(WHOLE)])
    """Used share at the beginning, in millionths."""
    resets_ns: int = attrs.field(validator=attrs.validators.gt(0))
    """Time until the first reset. Windows follow one another from there on."""

    @resets_ns.default
    def _whole(self) -> int:
        return self.every_ns

    @property
    def name(self) -> str:
        """Name of the window in headers: `5h`, `7d`."""
        days, rest_ns = divmod(self.every_ns, DAY_NS)
        return f"{days}d" if days and not rest_ns else f"{max(1, self.every_ns // HOUR_NS)}h"


@final
@attrs.define(eq=False)
class PlanWindowMeter:
    """Tokens of one window, and what was left of the windows before it."""

    limit: PlanLimit
    resets_ns: int = attrs.field(init=False)
    """When it begins anew."""
    used_max: int = attrs.field(init=False)
    """Largest used share so far, in millionths."""
    unused: list[int] = attrs.field(init=False, factory=list)
    """Unused share at each reset so far, in millionths."""
    _tokens: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.resets_ns = self.limit.resets_ns
        self._tokens = self.limit.tokens * self.limit.used // WHOLE
        self.used_max = self.used

    @property
    def used(self) -> int:
        """Used share, in millionths; never more than all, as headers have it."""
        return min(WHOLE, self._tokens * WHOLE // self.limit.tokens)

    def turn(self, now_ns: int) -> None:
        """Begin the windows anew whose end has come."""
        while self.resets_ns <= now_ns:
            self.unused.append(WHOLE - self.used)
            self.resets_ns += self.limit.every_ns
            self._tokens = 0

    def take(self, tokens: int, now_ns: int) -> None:
        """Count tokens; an answer under way may take more than there was."""
        self.turn(now_ns)
        self._tokens += tokens
        self.used_max = max(self.used_max, self.used)

    def reading(self, now_ns: int) -> PlanWindow:
        """Return the window as the head of an answer tells of it: in whole percents, downwards."""
        self.turn(now_ns)
        return PlanWindow(
            name=self.limit.name,
            used=self.used // STEP * STEP,
            window_ns=self.limit.every_ns,
            resets_ns=self.resets_ns - now_ns,
        )


@final
@attrs.define(eq=False)
class SimulatedPlan:
    """All windows of one account. A request is accepted while something is left of each."""

    limits: tuple[PlanLimit, ...]
    windows: tuple[PlanWindowMeter, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.windows = tuple(PlanWindowMeter(limit) for limit in self.limits)

    def opens_ns(self, now_ns: int) -> int | None:
        """Return the time until no window is used up; None: none is."""
        for window in self.windows:
            window.turn(now_ns)
        return max((one.resets_ns - now_ns for one in self.windows if one.used >= WHOLE), default=None)

    def take(self, tokens: int, now_ns: int) -> None:
        """Count tokens in every window."""
        for window in self.windows:
            window.take(tokens, now_ns)

    def reading(self, now_ns: int) -> PlanReading | None:
        """Return what the head of an answer tells of the plan; None: the account has none."""
        return PlanReading(windows=tuple(one.reading(now_ns) for one in self.windows)) if self.windows else None
