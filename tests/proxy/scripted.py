"""A provider that gives its replies in turn, and a policy under which attempts follow each other punctually."""

from __future__ import annotations

from typing import Final

import attrs
import trio

from hivemind_trio.policy import Program, RetrySettings
from tests.runtime.failing import PUNCTUAL
from tests.support.agent import Agent, Headers
from tests.support.programs import SECOND_NS, TIMEOUTS, lane, program, provider
from tests.support.upstream import EVENT_STREAM, JSON, FakeProvider, Reply, Request

FIRST_BYTE_S: Final = 5


def policy(
    *, limit: int = 4, retry: RetrySettings = PUNCTUAL, base: str = "http://there", deadline_s: int | None = None
) -> Program:
    return program(
        providers=[
            provider(limit=limit, base=base, timeouts=attrs.evolve(TIMEOUTS, first_byte_ns=FIRST_BYTE_S * SECOND_NS))
        ],
        lanes=[lane(deadline_ns=deadline_s and deadline_s * SECOND_NS)],
        retries=[retry],
    )


@attrs.define(eq=False)
class Script:
    """A provider that gives these replies in turn, and notes when it was asked."""

    replies: list[Reply]
    times: list[float] = attrs.field(factory=list, init=False)

    def __call__(self, _: Request) -> Reply:
        self.times.append(trio.current_time())
        assert self.replies, "asked once more than the script has replies"
        return self.replies.pop(0)


def playing(*replies: Reply) -> tuple[FakeProvider, Script]:
    script = Script(list(replies))
    return FakeProvider(script), script


def failing(status: int, *headers: tuple[bytes, bytes], body: bytes = b'{"error":{"message":"no"}}') -> Reply:
    return Reply(status=status, headers=[JSON, (b"x-of", b"the failure"), *headers], steps=(body,))


def from_provider(agent: Agent) -> Headers:
    """The answer's headers without our own."""
    return [(name, value) for name, value in agent.answer_headers if not name.startswith(b"x-hivemind-")]


START: Final = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9}}}\n\n'
DELTA: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"So"}}\n\n'
STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
EVENTS: Final = (START, 1.0, DELTA, STOP)
STREAMED: Final = Reply(headers=[EVENT_STREAM, (b"x-of", b"the success")], steps=EVENTS)
PLAIN: Final = Reply(headers=[JSON, (b"x-of", b"the success")], steps=(b'{"ok":', b" true}"))
