"""A week of a proxy that is ended, killed and started again at any moment: its budget, held against a count of calls.

Engine, ledger and SQLite are the real ones, and so is the file. The clocks are virtual: the week takes a second. The
thread of the ledger is the event loop, so that a virtual second has room for a write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from hivemind_trio.model import Reason
from hivemind_trio.runtime import Engine, Rejected
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.store import Ledger, SqliteStore, writing
from hivemind_trio.store.state.interface import Entry
from tests.support.ends import SUCCEEDED
from tests.support.policies import compiled
from tests.support.programs import wish

S: Final = 1_000_000_000
HOUR_S: Final = 3_600
DAY_S: Final = 24 * HOUR_S
WEEK_S: Final = 7 * DAY_S
BEGAN_NS: Final = 1_800_000_000 * S

LIMIT: Final = 40
SLICE_S: Final = DAY_S // 64 + 1
"""A sliding window is counted in slices, by the file and by the scheduler; each makes it count for as much longer."""
LASTS_S: Final = 60
"""An attempt, at most; it counts from its end."""

POLICY: Final = f"""hmp 1
provider p {{ api anthropic; base "http://127.0.0.1:1"; concurrency 4 }}
budget calls {{ requests {LIMIT}/day; window sliding; at 100% {{ deny "enough" }} }}
"""


async def inline(write: Callable[..., Any], *args: Any, limiter: object = None) -> Any:
    await trio.lowlevel.checkpoint()
    return write(*args)


class Mortal:
    """A store whose process may be gone: nothing that happens from then on reaches the file."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.gone = False

    def append(self, entry: Entry) -> None:
        if not self.gone:
            self.store.append(entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Week:
    """The clock on the wall, and what reached the provider."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.served_s: list[float] = []
        """When calls reached the provider, in time that passed."""
        self.rejected_s: list[float] = []
        self.reasons: set[Reason] = set()

    def wall_ns(self) -> int:
        return BEGAN_NS + round(trio.current_time() * S)

    async def attempt(self) -> AttemptResult:
        self.served_s.append(trio.current_time())
        await trio.sleep(self.chance.uniform(1, LASTS_S))
        return SUCCEEDED

    async def agent(self, engine: Engine) -> None:
        while True:
            await trio.sleep(self.chance.expovariate(1 / 900))
            try:
                with engine.ticket(wish(), "x") as ticket:
                    await ticket.granted()
                    over = trio.Event()

                    async def run(over: trio.Event = over) -> AttemptResult:
                        try:
                            return await self.attempt()
                        finally:
                            over.set()

                    ticket.start(run)
                    await over.wait()
            except Rejected as rejected:
                self.reasons.add(rejected.reject.reason)
                self.rejected_s.append(trio.current_time())

    async def life(self, path: str, seconds: float, *, killed: bool) -> None:
        """Run the proxy for so long, and end it: in order, or as if it was killed."""
        program = compiled(POLICY)
        store = SqliteStore.open(path, self.wall_ns(), lambda account: account.window_ns, "boot")
        async with AsyncExitStack() as stack:
            stack.callback(store.close)
            mortal = Mortal(store)
            ledger = Ledger(
                mortal,
                post=lambda event: engine.post(event),
                left_ns=lambda window: window.length_ns,
                learned=dict,
                on_trouble=pytest.fail,
                wall_ns=self.wall_ns,
            )
            engine = Engine(program, ledger=ledger, audit=True)
            ledger.open(store.restored)
            if not killed:
                await stack.enter_async_context(writing(ledger))
            async with trio.open_nursery() as nursery:
                if killed:
                    nursery.start_soon(ledger.run)
                await nursery.start(engine.run)
                for _ in range(3):
                    nursery.start_soon(self.agent, engine)
                await trio.sleep(seconds)
                mortal.gone = killed
                nursery.cancel_scope.cancel()


def most_within(times_s: list[float], window_s: float) -> int:
    """Return the most of these in any window of that length."""
    return max((sum(at <= each < at + window_s for each in times_s) for at in times_s), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_a_week_of_restarts_overspends_nothing_and_wastes_nothing(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(trio.to_thread, "run_sync", inline)
    week, lives, kills = Week(seed), 0, 0
    began_s = trio.current_time()
    while trio.current_time() - began_s < WEEK_S:
        killed = week.chance.random() < 0.6
        await week.life(str(tmp_path / "state.db"), week.chance.expovariate(1 / (2 * HOUR_S)), killed=killed)
        lives, kills = lives + 1, kills + killed
        await trio.sleep(week.chance.choice([0.5, 30, HOUR_S]))

    assert week.reasons == {Reason.BUDGET}
    assert lives > 40
    assert kills > 20
    assert most_within(week.served_s, DAY_S - SLICE_S) <= LIMIT
    # A rejected call met a budget that was really used up: nothing was charged twice, nor for longer than its day.
    for at_s in week.rejected_s:
        charged = [each for each in week.served_s if at_s - DAY_S - 2 * SLICE_S - LASTS_S <= each <= at_s]
        assert len(charged) >= LIMIT
    assert len(week.rejected_s) > 50
