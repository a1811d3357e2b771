"""The last advice on what to change in the policy, since many ask for the same."""

from __future__ import annotations

from typing import Final, final

import attrs
import trio

from hivemind_trio.admin.views import AdviceState, AdviceView

SECOND_NS: Final = 1_000_000_000
LASTS_NS: Final = 600 * SECOND_NS
REST: Final = 20
"""Advice is as old as this many times what it cost before there is another: 5 % of a processor at most."""


@final
@attrs.frozen(kw_only=True)
class DatedAdvice:
    """Advice, and its policy."""

    taken_ns: int
    """Since the engine began."""
    policy_hash: str
    cost_ns: int
    """Processor time that it took."""
    view: AdviceView
    """Without its time."""

    def is_fresh(self, now_ns: int, policy_hash: str) -> bool:
        """Return True while it is not to be made again; if there was none, it is soon."""
        lasts_ns = LASTS_NS if self.view.state is AdviceState.READY else 30 * SECOND_NS
        return self.policy_hash == policy_hash and now_ns - self.taken_ns < max(lasts_ns, REST * self.cost_ns)


@final
@attrs.define(eq=False)
class AdviceKeeper:
    """Keeps the last advice, and whether somebody wants a new one."""

    last: DatedAdvice | None = None
    _wanted: trio.Event = attrs.field(factory=trio.Event)

    def want(self) -> None:
        """Have new advice computed."""
        self._wanted.set()

    async def wanted(self) -> None:
        """Return when somebody wants advice."""
        await self._wanted.wait()
        self._wanted = trio.Event()
