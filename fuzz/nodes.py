"""Lives of several nodes on one store, with all that may happen to honest ones.

Invariants: no more calls are in flight than the cap; no more begins in any window than its limit, where every node is
heard while the store learns; no budget is overspent by more than the one call that may go alone.

The bytes are a seed. `tests/scheduler/sharing` has the worlds, and keeps each life that has shown a fault as a test.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Final

from hivemind_trio.scheduler.sharing.window_ring import WindowRing
from tests.scheduler.sharing.budget_fleet import MOST, BudgetFleet
from tests.scheduler.sharing.fleet import Fleet, hard_life
from tests.scheduler.sharing.window_fleet import WindowFleet

SEEDS: Final = tuple(bytes([number]) * 4 for number in range(6))

LEARNING_MS: Final = 12_000
"""Time in which every node is heard, whatever its links lose."""


def one_input(data: bytes) -> None:
    """Live one life of slots, and now and then one of a window and one of a budget.

    Raises:
        AssertionError: An invariant does not hold.
    """
    random = Random(data)
    slots = hard_life(Fleet(random, size=random.randrange(2, 6), cap=random.randrange(2, 25)))
    assert slots.peak <= slots.cap, (slots.peak, slots.cap)
    match random.randrange(8):
        case 0:
            window = WindowFleet(random, random.randrange(1, 6), local=0.0)
            lose_windows(window)
            assert window.most() <= window.limit, (window.most(), window.limit)
        case 1:
            budget = BudgetFleet(random, random.randrange(1, 6))
            lose_budgets(budget)
            assert budget.spent() < budget.limit + MOST, (budget.spent(), budget.limit)


def lose_windows(fleet: WindowFleet) -> None:
    """Kill nodes, and once empty the store, while calls come."""
    random = fleet.random
    fleet.ring = WindowRing(fleet.ring.shape, LEARNING_MS)
    fleet.at(0, fleet.arrivals)
    wiped = random.randrange(8)
    for step in range(8):
        fleet.play(fleet.now_ms + random.randrange(500, 6_000))
        if step == wiped:
            fleet.ring = WindowRing(fleet.ring.shape, LEARNING_MS)
            fleet.run += random.random() < 0.5
        elif step < wiped and random.random() < 0.5:  # what a node that is down has used, a wiped store never hears
            fleet.restart(random.randrange(fleet.size))
            fleet.play(fleet.now_ms + fleet.window_ms)


def lose_budgets(fleet: BudgetFleet) -> None:
    """Empty the store, take it away and kill nodes, while calls come."""
    random = fleet.random
    fleet.arrivals(20)
    for _ in range(30):
        fleet.play(fleet.now_ms + random.randrange(50, 800))
        luck = random.random()
        if luck < 0.1:
            fleet.wipe()
        elif luck < 0.2:
            fleet.away = not fleet.away
        elif luck < 0.3:
            fleet.restart(random.randrange(fleet.size))
    fleet.away = False
    fleet.play(fleet.now_ms + 10_000)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        one_input(Path(path).read_bytes())
