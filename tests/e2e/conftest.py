"""Fixtures of the end-to-end tests. All are slow: they serve the proxy over sockets or start it as a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from hivemind_trio.demo import SimulatedProvider
from tests.e2e.control import own_runtime

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(f"{HERE}/"):  # of 18,000 paths, `parents` takes a second
            item.add_marker(pytest.mark.slow)


@pytest.fixture
async def provider(nursery: trio.Nursery) -> AsyncIterator[SimulatedProvider]:
    """A provider on loopback, the same for each run."""
    provider = SimulatedProvider(seed=7)
    await nursery.start(provider.run)
    yield provider
    nursery.cancel_scope.cancel()


@pytest.fixture
def runtime() -> Iterator[dict[str, str]]:
    """An environment in which commands find only the proxies of this test."""
    with own_runtime() as env:
        yield env
