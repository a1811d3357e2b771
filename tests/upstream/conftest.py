"""Both transports, so that every test says what both must do; where they differ, the test says so."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest
import trustme

from hivemind_trio.upstream import PoolTransport, StockTransport, Upstream


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """A client's context that knows the test's certificate authority and no other."""
    return ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())


@pytest.fixture(params=[PoolTransport, StockTransport], ids=["pool", "stock"])
def make(request: pytest.FixtureRequest) -> Callable[..., httpx2.AsyncBaseTransport]:
    made: Callable[..., httpx2.AsyncBaseTransport] = request.param
    return made


@pytest.fixture
async def upstream(make: Callable[..., httpx2.AsyncBaseTransport], trusting: ssl.SSLContext) -> AsyncIterator[Upstream]:
    """Over each transport in turn."""
    upstream = Upstream(make(tls=trusting))
    yield upstream
    await upstream.aclose()


@pytest.fixture
async def pool(trusting: ssl.SSLContext) -> AsyncIterator[PoolTransport]:
    async with PoolTransport(tls=trusting) as pool:
        yield pool
