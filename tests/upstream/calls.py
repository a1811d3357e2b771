"""How the tests call: short, with bounds that a healthy exchange never meets."""

from __future__ import annotations

import json
from typing import Any

import attrs

from hivemind_trio.policy import Timeouts
from hivemind_trio.upstream import Upstream

S = 1_000_000_000

PATIENT = Timeouts(connect_ns=10 * S, first_byte_ns=20 * S, idle_ns=30 * S, total_ns=60 * S)


@attrs.frozen
class Answer:
    """A response, read to its end."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    pieces: int

    @property
    def said(self) -> Any:
        return json.loads(self.body)


async def call(
    upstream: Upstream,
    base: str,
    method: str = "POST",
    target: bytes = b"/v1/messages",
    headers: list[tuple[bytes, bytes]] | None = None,
    body: bytes = b"",
    timeouts: Timeouts = PATIENT,
) -> Answer:
    sending = upstream.send(
        base=base, method=method, target=target, headers=headers or [], body=body, timeouts=timeouts
    )
    async with sending as response:
        pieces = [piece async for piece in response]
    return Answer(response.status, response.headers, b"".join(pieces), len(pieces))


async def collect(upstream: Upstream, base: str, pieces: list[bytes], target: bytes = b"/") -> None:
    """Put each piece into the list as it comes, so that those before an error are there after it."""
    async with upstream.send(
        base=base, method="GET", target=target, headers=[], body=b"", timeouts=PATIENT
    ) as response:
        async for piece in response:
            pieces.append(piece)
