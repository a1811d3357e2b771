"""Time jumps when nothing has happened for a while: long enough for loopback, where a byte is there at once."""

from __future__ import annotations

import pytest
import trio.testing


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.03)
