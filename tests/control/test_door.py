"""The control listener while the proxy is overloaded."""

from __future__ import annotations

import pytest

from hivemind_trio.control.door import BOUNDS
from hivemind_trio.listen import Bounds
from hivemind_trio.listen.overload import LoopLag


@pytest.mark.parametrize(("bounds", "overloaded"), [(Bounds(), True), (BOUNDS, False)])
async def test_operators_are_served_while_agents_are_turned_away(bounds: Bounds, overloaded: bool) -> None:
    lag = LoopLag(bounds.turn_ns / 1e9)
    for _ in range(400):
        lag.turned(0.5, 0.5)

    assert lag.is_overloaded is overloaded
