"""Does a cancellation, at whatever moment, leak a connection or spoil one?

Many callers at once, each cancelled at a random moment, over a server that answers in many ways. Every answer that
does arrive must be its request's own; at the end the transport must still work, and once it is closed neither the
server nor this process may have a socket left.

    python -m tests.upstream.cancel_soak --runs 100000 [--transport stock] [--tls] [--seed 1]
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
import httpx2
import trio
import trustme

from hivemind_trio.upstream import PoolTransport, StockTransport, Upstream, UpstreamError
from tests.support.relay import HOST

from .calls import PATIENT
from .server import Seen, serve

CALLERS: Final = 16
WAYS: Final = ("plain", "stream", "slow", "head", "close", "large", "upload", "cut", "early")
LARGE: Final = 300_000


async def app(seen: Seen) -> None:
    """Answer in the way the target asks for; every piece says whose it is."""
    _, way, number = seen.target.split(b"/")
    mine = b"<" + number + b">"
    name = [(b"x-call", number)]
    if way == b"plain":
        await seen.plain(mine * 20, headers=name)
    elif way in (b"stream", b"slow"):
        await seen.head(200, name)
        for _ in range(5):
            await seen.piece(mine)
            await trio.sleep(0.0005 if way == b"slow" else 0)
        await seen.end()
    elif way == b"head":
        await seen.head(200, [*name, (b"content-length", b"100")])
        await seen.end()
    elif way == b"close":
        await seen.plain(mine, headers=[*name, (b"connection", b"close")])
    elif way == b"large":
        await seen.plain(mine * (LARGE // len(mine)), headers=name)
    elif way == b"upload":
        await seen.plain(mine if seen.body == mine * (LARGE // len(mine)) else b"<not mine>", headers=name)
    elif way == b"early":
        # Closed without a word after an answer that promised to go on: the next call must notice.
        await seen.plain(mine, headers=name)
        await seen.hang_up()
    else:
        await seen.head(200, [*name, (b"content-length", b"100")])
        await seen.piece(mine)
        await seen.cut()


@attrs.define
class Tally:
    """What became of the calls."""

    answered: int = 0
    cancelled: int = 0
    left: int = 0
    failed: Counter[str] = attrs.field(factory=Counter)
    connections: int = 0


async def soak(make: Callable[..., httpx2.AsyncBaseTransport], *, runs: int, seed: int, tls: bool = False) -> Tally:
    """Run that many calls. AssertionError says what was wrong."""
    authority = trustme.CA()
    client_tls = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(server_tls)
    chance = random.Random(seed)
    tally = Tally()
    numbers = iter(range(runs))
    gc.collect()
    sockets_before = _open_files()

    async with serve(app, tls=server_tls if tls else None, remember=False) as server:
        upstream = Upstream(make(tls=client_tls))

        async def caller() -> None:
            for number in numbers:
                # An exchange takes a few milliseconds among so many: most moments fall into it.
                patience_s = chance.choice((0.001, 0.005, 0.03, 1.0)) * chance.random()
                way = chance.choice(WAYS)
                leave_early = chance.random() < 0.1
                with trio.move_on_after(patience_s) as scope:
                    try:
                        await _one_call(upstream, server.base, way, number, leave_early)
                        tally.left += leave_early
                        tally.answered += not leave_early
                    except UpstreamError as error:
                        tally.failed[f"{way}: {error.kind}"] += 1
                tally.cancelled += scope.cancelled_caught

        async with trio.open_nursery() as nursery:
            for _ in range(CALLERS):
                nursery.start_soon(caller)

        for number in range(20):
            await _one_call(upstream, server.base, "plain", number, leave_early=False)
        assert server.open <= CALLERS, f"{server.open} connections for {CALLERS} callers"
        await upstream.aclose()
        await server.all_closed()
        tally.connections = server.accepted

    gc.collect()
    assert _open_files() <= sockets_before, f"{_open_files() - sockets_before} files left open"
    # A cut answer is cut for whoever reads it; nothing else may have failed but a GET, POST or HEAD that met a
    # connection at the very moment the server hung up.
    for failure in tally.failed:
        assert failure == "cut: truncated" or failure.endswith(": reset"), failure
    return tally


async def _one_call(upstream: Upstream, base: str, way: str, number: int, leave_early: bool) -> None:
    mine = b"<%d>" % number
    large = mine * (LARGE // len(mine))
    sending = upstream.send(
        base=base,
        method={"head": "HEAD", "upload": "POST", "early": "POST"}.get(way, "GET"),
        target=f"/{way}/{number}".encode(),
        headers=[],
        body=large if way == "upload" else b"",
        timeouts=PATIENT,
    )
    async with sending as response:
        assert (b"x-call", b"%d" % number) in response.headers, f"{way} {number} got the answer of another"
        if leave_early:
            return
        body = b"".join([piece async for piece in response])
    expected = {"plain": mine * 20, "stream": mine * 5, "slow": mine * 5, "head": b"", "large": large}
    assert body == expected.get(way, mine), f"{way} {number}: another body"


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--transport", choices=["pool", "stock"], default="pool")
    arguments = parser.parse_args()
    make = PoolTransport if arguments.transport == "pool" else StockTransport

    async def run() -> None:
        began = time.perf_counter()
        tally = await soak(make, runs=arguments.runs, seed=arguments.seed, tls=arguments.tls)
        print(f"{tally}\n{time.perf_counter() - began:.0f} s")

    with suppress(KeyboardInterrupt):
        trio.run(run)


if __name__ == "__main__":
    main()
