"""A coding agent's side of the wire: Anthropic Messages over HTTP/1.1, plain and streamed, with no SDK.

It is as unforgiving as the paper's agents: any status but 200, any broken connection, any stream without its last event
is the end of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, final
from urllib.parse import urlsplit

import attrs
import h11
import trio

from hivemind_trio.sim import Agent, Turn

READ_TIMEOUT_S: Final = 120.0
"""Time for which the paper's agents wait for a byte."""

MODEL: Final = "claude-sonnet-4-5"


class TurnError(Exception):
    """The turn came to no good end; `tokens` had been spent on it."""

    def __init__(self, why: str, tokens: int = 0) -> None:
        super().__init__(why)
        self.tokens = tokens


async def live(agent: Agent, base: str, took: Callable[[float], None] | None = None) -> None:
    """Take turns until the job is done or the agent dies; the result is in `agent`.

    Args:
        base: `http://host:port`, with a path in front of `/v1` or without.
        took: Told of every turn that came to a good end how many seconds it took.
    """
    connection: AgentConnection | None = None
    try:
        for turn in agent.turns():
            await trio.sleep(turn.think_ns / 1e9)
            began_s = trio.current_time()
            try:
                if connection is None:
                    connection = await AgentConnection.open(base)
                agent.succeeded(await connection.take(turn))
                if took is not None:
                    took(trio.current_time() - began_s)
            except TurnError as failure:
                agent.failed(str(failure), tokens=failure.tokens)
            except trio.TooSlowError:
                agent.failed(f"no byte for {READ_TIMEOUT_S:.0f} s")
            except (OSError, trio.BrokenResourceError, h11.ProtocolError) as error:
                agent.failed(f"connection: {error or type(error).__name__}")
    finally:
        if connection is not None:
            connection.stream.socket.close()  # not aclose(): a cancelled agent must not wait


@final
@attrs.define(eq=False)
class AgentConnection:
    """One kept-alive connection."""

    stream: trio.SocketStream
    authority: str
    prefix: str
    _wire: h11.Connection = attrs.field(init=False, factory=lambda: h11.Connection(h11.CLIENT))

    @classmethod
    async def open(cls, base: str) -> AgentConnection:
        """Connect; raises OSError."""
        url = urlsplit(base)
        stream = await trio.open_tcp_stream(url.hostname or "", url.port or 80)
        return cls(stream, url.netloc, url.path.rstrip("/"))

    async def take(self, turn: Turn) -> int:
        """One call; the tokens it cost, input and output. Raises TurnError, OSError and Trio's and h11's errors."""
        asked = {
            "model": MODEL,
            "max_tokens": turn.tokens_max_out,
            "stream": turn.stream,
            "messages": [{"role": "user", "content": turn.prompt}],
        }
        body = json.dumps(asked).encode()
        headers = [
            ("host", self.authority),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("x-api-key", "demo"),
            ("anthropic-version", "2023-06-01"),
        ]
        head = h11.Request(method="POST", target=f"{self.prefix}/v1/messages", headers=headers)
        pieces = [self._wire.send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage())]
        await self.stream.send_all(b"".join(pieces))

        response = await self._next()
        assert isinstance(response, h11.Response), response
        if turn.stream and response.status_code == 200:
            tokens = await self._read_stream()
        else:
            tokens = await self._read_plain(response.status_code)
        self._wire.start_next_cycle()
        return tokens

    async def _read_plain(self, status: int) -> int:
        body = b""
        while isinstance(event := await self._next(), h11.Data):
            body += event.data
        try:
            said = json.loads(body)
            if status == 200:
                return int(said["usage"]["input_tokens"]) + int(said["usage"]["output_tokens"])
            raise TurnError(f"{status} {said['error']['type']}")
        except (ValueError, KeyError, TypeError):
            raise TurnError(f"{status}, and a body that is no answer") from None

    async def _read_stream(self) -> int:
        """Read to `message_stop`; what comes after it is not the agent's affair."""
        count = _Counter()
        rest = b""
        try:
            while isinstance(event := await self._next(), h11.Data):
                *events, rest = (rest + bytes(event.data)).split(b"\n\n")
                for one in events:
                    count.event(one)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError, h11.ProtocolError) as error:
            raise TurnError(f"the stream broke: {error or type(error).__name__}", count.tokens) from None
        if not count.ended:
            raise TurnError("the stream ended early", count.tokens)
        return count.tokens

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while True:
            event = self._wire.next_event()
            if event is not h11.NEED_DATA:
                return event
            with trio.fail_after(READ_TIMEOUT_S):
                self._wire.receive_data(await self.stream.receive_some(65536))


@attrs.define(eq=False)
class _Counter:
    """Tokens of a stream so far."""

    tokens_in: int = 0
    tokens_out: int = 0
    ended: bool = False

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def event(self, event: bytes) -> None:
        """Take one server-sent event in; pings and comments count for nothing."""
        data = b"".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:"))
        said: dict[str, Any] = json.loads(data) if data else {}
        match said.get("type"):
            case "message_start":
                self.tokens_in = said["message"]["usage"]["input_tokens"]
            case "content_block_delta":
                # The final count comes with message_delta; until then, a word is a token.
                self.tokens_out += len(said["delta"]["text"].split())
            case "message_delta":
                self.tokens_out = said["usage"]["output_tokens"]
            case "message_stop":
                self.ended = True
            case "error":
                raise TurnError(f"mid-stream: {said['error']['type']}", self.tokens)
