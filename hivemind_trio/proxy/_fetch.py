"""The attempt: from the permit to the last byte of the provider's answer. It never talks to the agent."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.core import Outcome
from hivemind_trio.policy import Timeouts
from hivemind_trio.upstream import Upstream, UpstreamError

from ._headers import Headers, for_agent
from ._outbox import AgentStalled, Outbox


@final
@attrs.frozen(kw_only=True)
class Outgoing:
    """What is sent upstream."""

    base: str
    method: str
    target: bytes
    headers: Headers = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    timeouts: Timeouts


async def fetch(upstream: Upstream, outgoing: Outgoing, outbox: Outbox) -> Outcome:
    """Send the request and put the answer into the outbox, piece by piece; what it says of the provider."""
    try:
        async with upstream.send(
            base=outgoing.base,
            method=outgoing.method,
            target=outgoing.target,
            headers=outgoing.headers,
            body=outgoing.body,
            timeouts=outgoing.timeouts,
        ) as response:
            outbox.begin(response.status, for_agent(response.headers))
            async for piece in response:
                if not outbox.put(piece):
                    response.pause()
                    await outbox.room()
        outbox.end()
        return outcome_of(response.status)
    except UpstreamError as error:
        outbox.fail(error)
        return Outcome.DROPPED
    except AgentStalled:
        return Outcome.IGNORED
    finally:
        outbox.close()


def outcome_of(status: int) -> Outcome:
    """What a whole answer says of the provider."""
    if status == 429 or status >= 500:
        return Outcome.DROPPED
    return Outcome.SUCCEEDED if status < 400 else Outcome.IGNORED
