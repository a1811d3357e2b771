"""Log of standstills, where calls wait for a provider and none is in flight there, and of providers that are silent."""

from __future__ import annotations

from typing import Final, final

import attrs
import trio

from hivemind_trio.admin import Silences
from hivemind_trio.runtime import Engine
from hivemind_trio.scheduler import Circuit, Snapshot

from .events import ProviderAnswers, ProviderSilent, ProviderStandstill
from .log import EventLog

SECOND_NS: Final = 1_000_000_000

LONG_NS: Final = 5 * SECOND_NS
"""Duration from which a standstill is reported."""
LOOK_S: Final = 2.5


@final
@attrs.define(eq=False)
class Standstills:
    """Reports each standstill and each silence once."""

    log: EventLog
    silences: Silences
    _said: dict[str, int] = attrs.field(init=False, factory=dict)
    """Provider -> start of its standstill that was reported last."""
    _silent: dict[str, int] = attrs.field(init=False, factory=dict)
    """Provider whose silence was reported -> number of its answers before that."""

    async def run(self, engine: Engine) -> None:
        """Look at the engine now and then, until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            self.look(engine.snapshot(), engine.now_ns())

    def look(self, snapshot: Snapshot, now_ns: int) -> None:
        """Report the providers that stand or are silent for long."""
        self._look_at_silences(snapshot, now_ns)
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

    def _look_at_silences(self, snapshot: Snapshot, now_ns: int) -> None:
        for name, one in self.silences.of.items():
            if name in self._silent:
                if one.answers > self._silent[name]:
                    del self._silent[name]
                    self.log.emit(ProviderAnswers(provider=name))
                continue
            pool = snapshot.pools.get(name)
            if pool is None or pool.circuit is not Circuit.CLOSED:
                continue
            # Between two tests nothing is in flight for some seconds, which is no standstill yet.
            if pool.stands is not None and now_ns - pool.stands.since_ns > LONG_NS:
                continue
            lasts_ns = one.lasts_ns(pool.waiting, now_ns)
            if lasts_ns is not None:
                self._silent[name] = one.answers
                self.log.emit(
                    ProviderSilent(
                        provider=name,
                        silent_s=round(lasts_ns / SECOND_NS, 1),
                        inflight=len(one.pending),
                        waiting=pool.waiting,
                        refused=one.refused,
                        failed=one.failed,
                    )
                )
