"""What does a call cost the process that makes it, over each way in?

CPU of this process per POST (10 KB up, 22 headers and 1 KB down) at 1 and 64 callers, and per streamed event as the
slope between streams of 10 and of 60. The ways take turns, so that a busy machine is unkind to all; compare columns of
one run, not of two. The server is a process of its own.

    python -m tests.upstream.cost [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import httpx2
import trio

from hivemind_trio.upstream import PoolTransport, StockTransport, Upstream

from .server import Seen, serve

Call = Callable[[bytes], Awaitable[None]]

BODY: Final = b"x" * 10_000
EVENT: Final = b"data: " + b"y" * 220 + b"\n\n"
REQUEST_HEADERS: Final = [(b"X-Stainless-%d" % number, b"some value %d" % number) for number in range(16)]
RESPONSE_HEADERS: Final = [(b"x-ratelimit-%d" % number, b"some value %d" % number) for number in range(21)]


async def app(seen: Seen) -> None:
    """`/plain`, or `/N` for a stream of N events."""
    if seen.target == b"/plain":
        await seen.plain(b"z" * 1000, headers=RESPONSE_HEADERS)
        return
    await seen.head(200, RESPONSE_HEADERS)
    for _ in range(int(seen.target[1:])):
        await trio.sleep(0.003)
        await seen.piece(EVENT)
    await seen.end()


def ways(base: str) -> dict[str, Call]:
    """The ways in, each with connections of its own."""

    def over(transport: httpx2.AsyncBaseTransport) -> Call:
        upstream = Upstream(transport)

        async def call(target: bytes) -> None:
            async with upstream.send(
                base=base, method="POST", target=target, headers=REQUEST_HEADERS, body=BODY
            ) as response:
                async for _ in response:
                    pass

        return call

    def through(client: httpx2.AsyncClient) -> Call:
        async def call(target: bytes) -> None:
            url = base + target.decode()
            async with client.stream("POST", url, content=BODY, headers=REQUEST_HEADERS) as response:
                async for _ in response.aiter_raw():
                    pass

        return call

    return {
        "Upstream, PoolTransport": over(PoolTransport()),
        "Upstream, StockTransport": over(StockTransport()),
        "AsyncClient, PoolTransport": through(httpx2.AsyncClient(transport=PoolTransport())),
        "AsyncClient, its own": through(httpx2.AsyncClient()),
    }


async def cpu_us(call: Call, target: bytes, callers: int, calls: int) -> float:
    """CPU of this process per call, in microseconds."""
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            await call(target)

    began = time.process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(caller)
    return (time.process_time() - began) / calls * 1e6


async def measure(base: str, rounds: int) -> None:
    """Print a table of medians."""
    table: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        for name, call in ways(base).items():
            await cpu_us(call, b"/plain", 64, 200)
            short, long = await cpu_us(call, b"/10", 16, 64), await cpu_us(call, b"/60", 16, 64)
            row = (await cpu_us(call, b"/plain", 1, 500), await cpu_us(call, b"/plain", 64, 500), (long - short) / 50)
            table.setdefault(name, []).append(row)
    print(f"{'CPU, µs':28}{'POST, 1':>10}{'POST, 64':>10}{'event':>10}")
    for name, rows in table.items():
        print(f"{name:28}" + "".join(f"{statistics.median(column):10.0f}" for column in zip(*rows, strict=True)))


async def provide() -> None:
    """The server's process: say where, and serve until killed."""
    async with serve(app, remember=False) as server:
        print(server.base, flush=True)
        await trio.sleep_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--provide", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.provide:
        trio.run(provide)
        return
    command = [sys.executable, "-m", "tests.upstream.cost", "--provide"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            trio.run(measure, server.stdout.readline().strip(), arguments.rounds)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
