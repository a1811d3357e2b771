"""Log of standstills: calls wait in line for a provider, and none is in flight there."""

from __future__ import annotations

from typing import Final, final

import attrs
import trio

from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import Snapshot

from .events import ProviderStandstill
from .log import EventLog

SECOND_NS: Final = 1_000_000_000

LONG_NS: Final = 5 * SECOND_NS
"""Duration from which a standstill is reported."""
LOOK_S: Final = 2.5


@final
@attrs.define(eq=False)
class Standstills:
    """Reports each standstill once."""

    log: EventLog
    _said: dict[str, int] = attrs.field(init=False, factory=dict)
    """Provider -> start of its standstill that was reported last."""

    async def run(self, engine: Engine) -> None:
        """Look at the engine now and then, until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            self.look(engine.snapshot(), engine.now_ns())

    def look(self, snapshot: Snapshot, now_ns: int) -> None:
        """Report the providers that stand for long."""
        for name, pool in snapshot.pools.items():
            stands = pool.stands
            if stands is None or now_ns - stands.since_ns <= LONG_NS or self._said.get(name) == stands.since_ns:
                continue
            self._said[name] = stands.since_ns
            self.log.emit(
                ProviderStandstill(
                    provider=name,
                    reason=stands.reason,
                    waiting=pool.waiting,
                    stands_s=round((now_ns - stands.since_ns) / SECOND_NS, 1),
                    next_in_s=None if stands.until_ns is None else round((stands.until_ns - now_ns) / SECOND_NS, 1),
                )
            )
