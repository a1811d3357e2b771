"""What calls that are under way take of a proxy's memory: waiting, streaming, and not being read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from .load import Client, closed_loop
from .subjects import Subject
from .wire import BODY_BYTES, Answer, request

FLOOD_MB: Final = 256
FLOOD: Final = Answer.FLOOD.model(FLOOD_MB)
HOLD: Final = Answer.HOLD.model()
OPEN_STREAMS: Final = Answer.STREAM.model(1_000, 500)
MODELS: Final = (FLOOD, HOLD, OPEN_STREAMS)

STEADY_BYTES: Final = 65_536


async def waiting_kb(subject: Subject, calls: int, warm: int) -> float:
    """Resident memory that one more waiting call takes, its body not counted."""
    await _warm(subject, warm)
    async with _crowd(subject, request(HOLD, extra=subject.headers), 1):
        await trio.sleep(0.5)  # behind ours it has taken the only slot
        before = subject.resident_bytes()
        async with _crowd(subject, request(HOLD, extra=subject.headers), calls):
            after = await _settled(subject)
    return ((after - before) / calls - BODY_BYTES) / 1e3


async def open_streams(subject: Subject, streams: int, seconds: float, warm: int) -> tuple[float, float]:
    """Of so many streams with two events a second each: memory in KB for one, and CPU for all as a share of a core."""
    await _warm(subject, warm)
    before = subject.resident_bytes()
    async with _crowd(subject, request(OPEN_STREAMS, extra=subject.headers), streams):
        await trio.sleep(1.0)
        cpu_ns, began_s = subject.cpu_ns(), trio.current_time()
        await trio.sleep(seconds)
        share = (subject.cpu_ns() - cpu_ns) / 1e9 / (trio.current_time() - began_s)
        after = subject.resident_bytes()
    return ((after - before) / streams - BODY_BYTES) / 1e3, share


async def unread_mb(subject: Subject, seconds: float, warm: int) -> float:
    """By how much memory grows for one client that asks for an answer of `FLOOD_MB` and reads nothing of it."""
    await _warm(subject, warm)
    client = Client(subject.port)
    before = most = subject.resident_bytes()
    await client.send(request(FLOOD, extra=subject.headers))
    for _ in range(round(seconds * 10)):
        await trio.sleep(0.1)
        most = max(most, subject.resident_bytes())
    client.close()
    return (most - before) / 1e6


async def _warm(subject: Subject, calls: int) -> None:
    # More than one burst, so that what grows once has grown.
    for _ in range(5):
        asked = request(Answer.JSON.model(), extra=subject.headers)
        await closed_loop(subject.port, asked, clients=1, calls=calls // 5)


@asynccontextmanager
async def _crowd(subject: Subject, asked: bytes, clients: int) -> AsyncIterator[None]:
    """So many clients that ask, not all at once, and read what comes. OSError if one of them got no good answer."""
    crowd: Sequence[Client] = [Client(subject.port) for _ in range(clients)]
    failures: list[OSError] = []

    async def ask(client: Client) -> None:
        try:
            await client.call(asked)
        except OSError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for number, client in enumerate(crowd):
            nursery.start_soon(ask, client)
            if number % 20 == 19:
                await trio.sleep(0.02)
        yield
        nursery.cancel_scope.cancel()
    for client in crowd:
        client.close()
    if failures:
        said = str(failures[0]).partition("\r\n")[0]
        raise OSError(f"{len(failures)} of {clients} calls failed ({said})")


async def _settled(subject: Subject) -> int:
    """Resident memory once it has stood still for a second; after 15 s, what it is then."""
    steady = 0
    now = subject.resident_bytes()
    for _ in range(150):
        await trio.sleep(0.1)
        before, now = now, subject.resident_bytes()
        steady = steady + 1 if abs(now - before) < STEADY_BYTES else 0
        if steady == 10:
            break
    return now
