"""The whole proxy on a real socket before a simulated provider, and agents that are the SDKs themselves."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import attrs
import httpx2
import trio

from hivemind_trio.demo import INSTANT, SimulatedProvider
from hivemind_trio.listen import bind
from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.policy import MemoryFiles, Program, check
from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve import ProxyServer, open_house
from hivemind_trio.serve.traces import CallTraces
from hivemind_trio.sim import Traits
from hivemind_trio.store import Journal
from hivemind_trio.upstream import PoolTransport, StockTransport

T = TypeVar("T")

TRANSPORTS: Final[Mapping[str, Callable[[], httpx2.AsyncBaseTransport]]] = {
    "pool": PoolTransport,
    "stock": StockTransport,
}

PATIENCE_S: Final = 20
"""For what should happen at once; only a test that would otherwise hang for ever meets it."""

CAP_3: Final = """
hmp 1
provider sim { api generic; base env(UPSTREAM); concurrency 3 }
"""

CAP_1: Final = CAP_3.replace("concurrency 3", "concurrency 1")


def compiled(policy: str) -> Program:
    """The program of a policy's text."""
    checked = check("e2e.hmp", MemoryFiles({"e2e.hmp": policy}))
    assert checked.program is not None, checked.diagnostics
    return checked.program


@attrs.define(eq=False)
class Place:
    """A proxy that is serving, and the provider behind it."""

    house: ProxyServer
    provider: SimulatedProvider
    secrets: Mapping[SecretRef, str]
    records: list[CallRecord]
    """Calls that are over, in the order in which they ended."""
    broken: list[tuple[object, BaseException]]
    """What should not have happened."""

    @property
    def url(self) -> str:
        """For the Anthropic SDK."""
        return self.house.url

    @property
    def v1(self) -> str:
        """For the OpenAI SDK."""
        return f"{self.house.url}/v1"

    @property
    def waiting(self) -> int:
        """Calls that wait in the proxy."""
        return self.house.engine.snapshot().waiting

    @property
    def inflight(self) -> int:
        """Permits held."""
        return self.house.engine.snapshot().inflight

    def use(self, policy: str) -> None:
        """Reload."""
        self.house.use(compiled(policy), self.secrets)

    def sent(self, number: int = -1) -> dict[bytes, bytes]:
        """The headers of a request as the provider saw them, names in lower case."""
        return {name.lower(): value for name, value in self.provider.seen[number].headers}


@asynccontextmanager
async def standing(
    policy: str,
    *,
    transport: str = "pool",
    traits: Traits = INSTANT,
    secrets: Mapping[str, str] | None = None,
    journal: Journal | None = None,
    traces: CallTraces | None = None,
    patience_s: float = 3 * PATIENCE_S,
) -> AsyncIterator[Place]:
    """Serve `policy`, whose provider is at `env(UPSTREAM)`; afterwards nothing is held and nothing has crashed.

    Args:
        transport: One of `TRANSPORTS`.
        traits: Of the provider.
        secrets: Values of further `env(NAME)`.
        journal: Where every call is written down.
        traces: Makes the spans of calls.
        patience_s: What takes longer hangs, and fails.
    """
    with trio.fail_after(patience_s):
        async with trio.open_nursery() as nursery:
            provider = SimulatedProvider(traits, seed=7)
            await nursery.start(provider.run)
            values = {"UPSTREAM": provider.url, **(secrets or {})}
            references = {SecretRef(SecretSource.ENV, name): value for name, value in values.items()}
            records: list[CallRecord] = []
            broken: list[tuple[object, BaseException]] = []
            async with open_house(
                compiled(policy),
                references,
                bind("127.0.0.1", 0),
                transport=TRANSPORTS[transport](),
                report=lambda fault, error: broken.append((fault, error)),
                on_call=records.append,
                journal=journal,
                traces=traces,
                audit=True,
            ) as house:
                # Clients and provider work in this loop, too: its turns say nothing about the proxy.
                house.listener.lag.limit_s = math.inf
                place = Place(house, provider, references, records, broken)
                yield place
                await until(lambda: not place.inflight and not place.waiting)
            assert broken == []
            nursery.cancel_scope.cancel()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something about the proxy is true; fails if it never is."""
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - the proxy's counts have no event, and a real socket's time cannot jump
            await trio.sleep(0.002)


async def in_thread(ask: Callable[[], T]) -> T:
    """Run a synchronous SDK's call; a test that is over does not wait for it."""
    return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)


def messages(text: str = "hi") -> list[Any]:
    """A conversation, as both SDKs take it."""
    return [{"role": "user", "content": text}]
