"""Named scenarios of the adversary over loopback sockets, in real time: the same provider model behind a real server.

Agents and provider live in this process, the proxy in one of its own (`bench.sockets.house`). The provider's state
machine is the one of the virtual world; a pump delivers its milestones when their time has come, and a connection
writes them as server-sent events.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Any, Final, final

import attrs
import trio

from bench.simulated.worlds import text_of
from bench.sockets.clients import CREDENTIAL, PAD, Caller
from bench.sockets.sockets import _move_in, house_process
from hivemind_trio.model import Api
from hivemind_trio.sim import CLIENTS, ClientBehaviour, ClientReply
from hivemind_trio.sim import Turn as Asked

from .draw import declared, undeclared
from .provider import SECOND_NS, Answer, Ask, Exchange, Provider, Stage, error_event
from .run import BROKEN_RETRIES, Drawing, Job, Way, model_of

PATHS: Final = {Api.ANTHROPIC: "/v1/messages", Api.OPENAI: "/v1/chat/completions"}
EVENT_S: Final = 0.5
"""Between two events of a stream that has content."""
SOCKET_WAYS: Final = (Way.DIRECT, Way.CODE, Way.OURS, Way.DECLARED)
REASONS: Final = {200: "OK", 429: "Too Many Requests"}


@final
@attrs.frozen(kw_only=True)
class Real:
    """What came of one run over sockets."""

    makespan_ns: int
    dead: int
    died_of: dict[str, int]
    attempts: int
    turns: int

    @property
    def wasted(self) -> float:
        """Attempts without a turn, per turn."""
        return (self.attempts - self.turns) / max(1, self.turns)


# ---- the provider behind a port ----


@attrs.define(eq=False)
class Server:
    """The provider model on one port. `run` serves until cancelled."""

    drawing: Drawing
    url: str = attrs.field(init=False, default="")
    provider: Provider = attrs.field(init=False)
    _asks: dict[str, Ask] = attrs.field(init=False)
    _began_s: float = attrs.field(init=False, default=0.0)
    _pump: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _listening: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)

    def __attrs_post_init__(self) -> None:
        drawing = self.drawing
        self._asks = {turn.ask.key: turn.ask for job in drawing.jobs for turn in job.turns}
        self.provider = Provider(drawing.traits, drawing.seed)

    def begin(self) -> None:
        """Its time begins now."""
        self._began_s = trio.current_time()
        self.provider.epoch_s = int(time.time())  # noqa: TID251 - `date` and resets are read against a real clock

    def now_ns(self) -> int:
        """Since it began."""
        return round((trio.current_time() - self._began_s) * 1e9)

    async def run(self, *, task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen; during an outage nobody can connect."""
        port = 0
        async with trio.open_nursery() as nursery:
            while True:
                listeners = await trio.open_tcp_listeners(port, host="127.0.0.1", backlog=1024)
                port = listeners[0].socket.getsockname()[1]
                with trio.CancelScope() as self._listening:
                    if not self.url:
                        self.url = f"http://127.0.0.1:{port}"
                        self.begin()
                        nursery.start_soon(self._deliver)
                        task_status.started(self)
                    await trio.serve_listeners(self._converse, listeners, handler_nursery=nursery)
                for listener in listeners:
                    await listener.aclose()
                await trio.sleep_until(self._shut_until_s())

    async def weather(self) -> None:
        """Close the port in every outage."""
        for storm in self.drawing.traits.storms:
            if not storm.status and storm.share >= 1:
                await trio.sleep_until(self._began_s + storm.from_ns / 1e9)
                self._listening.cancel()

    def _shut_until_s(self) -> float:
        storm = self.drawing.traits.storm(self.now_ns())
        return trio.current_time() if storm is None else self._began_s + storm.to_ns / 1e9

    async def _deliver(self) -> None:
        """Hand milestones to the connections that wait for them."""
        while True:
            for exchange, stage in self.provider.due(self.now_ns()):
                if exchange.owner is not None:
                    exchange.owner.send_nowait(stage)
            due_ns = self.provider.next_ns()
            with trio.CancelScope() as self._pump:
                if due_ns is None:
                    await trio.sleep_forever()
                await trio.sleep_until(self._began_s + due_ns / 1e9)

    # ---- connections ----

    async def _converse(self, stream: trio.SocketStream) -> None:
        rest = b""
        try:
            async with stream:
                while True:
                    rest, body = await _request(stream, rest)
                    more = await self._answer(stream, json.loads(body))
                    if more is None:
                        return
                    rest += more
        except* (OSError, EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the proxy has hung up

    async def _answer(self, stream: trio.SocketStream, asked: dict[str, Any]) -> bytes | None:
        """Answer one request. Return what came behind it; None: the connection is over."""
        ask = self._asks[_key(asked)]
        exchange = self.provider.arrive(ask, self.now_ns())
        if not exchange.admitted:
            await trio.sleep(self.drawing.traits.rtt_ns / 1e9)
            if exchange.refused is None:
                _abort(stream)
                return None
            await stream.send_all(_whole(exchange.refused))
            return b""
        send, receive = trio.open_memory_channel[Stage](16)
        exchange.owner = send
        self._pump.cancel()  # what is due next has changed
        try:
            return await self._stream(stream, exchange, receive)
        finally:
            self.provider.leave(exchange, self.now_ns())
            self._pump.cancel()

    async def _stream(
        self, stream: trio.SocketStream, exchange: Exchange, stages: trio.MemoryReceiveChannel[Stage]
    ) -> bytes | None:
        more: list[bytes] = []
        whole = False

        async def watch(scope: trio.CancelScope) -> None:
            while True:
                piece = await stream.receive_some(65_536)
                if not piece:
                    scope.cancel()
                more.append(piece)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            whole = await self._events(stream, exchange, stages)
            nursery.cancel_scope.cancel()
        return b"".join(more) if whole else None

    async def _events(
        self, stream: trio.SocketStream, exchange: Exchange, stages: trio.MemoryReceiveChannel[Stage]
    ) -> bool:
        """Write what is generated. False: the connection is over."""
        traits = self.drawing.traits
        wire = _WIRES[traits.api]
        error = wire.error(traits.error_status)
        content = False
        following: Stage | None = None
        while True:
            stage, following = following, None
            if stage is None:
                with trio.move_on_after(EVENT_S if content and not exchange.stalled else float("inf")):
                    stage = await stages.receive()
            match stage:
                case None:
                    await stream.send_all(_chunk(wire.delta))
                case Stage.HEAD:
                    await stream.send_all(_head(200, {"content-type": "text/event-stream"} | exchange.head, None))
                    with suppress(trio.WouldBlock):
                        following = stages.receive_nowait()
                    if following is not Stage.ERROR:  # else it is the first event
                        await stream.send_all(_chunk(wire.start(exchange.ask)))
                case Stage.CONTENT:
                    content = True
                    await stream.send_all(_chunk(wire.delta))
                case Stage.END:
                    await stream.send_all(_chunk(wire.end(exchange.ask)) + LAST)
                    return True
                case Stage.ERROR:
                    await stream.send_all(_chunk(error) + LAST)
                    return True
                case Stage.NO_END:
                    await stream.send_all(LAST)
                    return True
                case Stage.CUT:
                    _abort(stream)
                    return False


LAST: Final = b"0\r\n\r\n"


async def _request(stream: trio.SocketStream, rest: bytes) -> tuple[bytes, bytes]:
    """What comes behind the next request, and its body. EOFError at the end."""
    while (end := rest.find(b"\r\n\r\n")) < 0:
        rest += await _more(stream)
    head = rest[: end + 2].lower()
    mark = b"\r\ncontent-length:"
    begin = head.index(mark) + len(mark)
    size = end + 4 + int(head[begin : head.index(b"\r\n", begin)])
    while len(rest) < size:
        rest += await _more(stream)
    return rest[size:], rest[end + 4 : size]


async def _more(stream: trio.SocketStream) -> bytes:
    data = bytes(await stream.receive_some(65_536))
    if not data:
        raise EOFError
    return data


def _key(asked: dict[str, Any]) -> str:
    """The turn that a request belongs to."""
    prompt: str = asked["messages"][-1]["content"]
    return prompt.rstrip(PAD)


def _abort(stream: trio.SocketStream) -> None:
    """End the connection with a reset."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


def _head(status: int, headers: dict[str, str], length: int | None) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}",
        *(f"{name}: {text}" for name, text in headers.items()),
    ]
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


def _whole(answer: Answer) -> bytes:
    return _head(answer.status, {"content-type": "application/json"} | answer.headers, len(answer.body)) + answer.body


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@final
@attrs.frozen
class _Wire:
    """Events of one dialect."""

    api: Api
    delta: bytes

    def error(self, status: int) -> bytes:
        """An error event."""
        return (
            (b"event: error\n" if self.api is Api.ANTHROPIC else b"")
            + b"data: "
            + error_event(self.api, status)
            + b"\n\n"
        )

    def start(self, ask: Ask) -> bytes:
        """The event before any content."""
        if self.api is Api.ANTHROPIC:
            usage = {"input_tokens": ask.tokens_in, "output_tokens": 1}
            message = {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "content": [],
                "model": "m",
                "usage": usage,
            }
            return _event({"type": "message_start", "message": message}) + _event(
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            )
        return _data({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": "assistant"}}]})

    def end(self, ask: Ask) -> bytes:
        """The closing events."""
        if self.api is Api.ANTHROPIC:
            return (
                _event({"type": "content_block_stop", "index": 0})
                + _event(
                    {
                        "type": "message_delta",
                        "delta": {"stop_reason": "end_turn"},
                        "usage": {"output_tokens": ask.tokens_out},
                    }
                )
                + _event({"type": "message_stop"})
            )
        usage = {"prompt_tokens": ask.tokens_in, "completion_tokens": ask.tokens_out}
        stop = {"index": 0, "delta": {}, "finish_reason": "stop"}
        return (
            _data({"object": "chat.completion.chunk", "choices": [stop]})
            + _data({"object": "chat.completion.chunk", "choices": [], "usage": usage})
            + b"data: [DONE]\n\n"
        )


def _event(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _data(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


_WIRES: Final = {
    Api.ANTHROPIC: _Wire(
        Api.ANTHROPIC,
        _event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}),
    ),
    Api.OPENAI: _Wire(
        Api.OPENAI,
        _data({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "word "}}]}),
    ),
}


# ---- the fleet ----


@attrs.define(eq=False)
class _Fleet:
    """All agents of one drawing."""

    drawing: Drawing
    client: ClientBehaviour
    base: str
    """With `{agent}` for the agent's name."""
    turns: int = 0
    ended_s: float = 0.0
    died_of: Counter[str] = attrs.field(factory=Counter)

    async def run(self, until_s: float) -> None:
        """Until all are done or dead, or time is up."""
        with trio.move_on_at(until_s):
            async with trio.open_nursery() as nursery:
                for number, job in enumerate(self.drawing.jobs):
                    nursery.start_soon(self._live, number, job)
            return
        self.ended_s = trio.current_time()
        done = sum(self.died_of.values())
        self.died_of["time is up"] += len(self.drawing.jobs) - done - self._finished

    _finished: int = 0

    async def _live(self, number: int, job: Job) -> None:
        api = self.drawing.traits.api
        chance = Random(f"{self.drawing.seed}/client/{number}")
        caller = Caller(
            client=self.client,
            api=api,
            model=model_of(job.turns[0].ask.group),
            path=PATHS[api],
            credential=f"sk-{job.agent}" if self.drawing.own_keys else CREDENTIAL,
        )
        await trio.sleep(job.start_ns / 1e9)
        for place, turn in enumerate(job.turns):
            await trio.sleep(turn.think_ns / 1e9)
            asked = Asked(
                number=place + 1,
                think_ns=0,
                stream=True,
                prompt=turn.ask.key,
                tokens_in=turn.ask.tokens_in,
                tokens_max_out=turn.ask.tokens_max,
            )
            why = await self._take(caller, self.base.format(agent=job.agent), asked, chance)
            if why:
                self.died_of[why] += 1
                break
            self.turns += 1
        else:
            self._finished += 1
        self.ended_s = trio.current_time()
        await caller.aclose()

    async def _take(self, caller: Caller, base: str, asked: Asked, chance: Random) -> str:
        """One turn with its retries. Return why it failed; empty: it did not."""
        retried = broken = 0
        while True:
            reply: ClientReply = await caller.ask(base, asked, retried)
            if reply.whole:
                return ""
            pause_ns = self.client.pause_ns(reply, retried, broken, chance)
            if pause_ns is None:
                return reply.why
            retried += 1
            broken += reply.broken
            await trio.sleep(pause_ns / 1e9)


@asynccontextmanager
async def _door(drawing: Drawing, way: Way, url: str) -> AsyncIterator[str]:
    """Where agents send their calls."""
    if way in (Way.DIRECT, Way.CODE):
        yield url
        return
    program = (declared(drawing) if way is Way.DECLARED else None) or undeclared(drawing)
    async with house_process() as child:
        house = await _move_in(child, text_of(program), {"p": url})
        yield house.url + "/@{agent}"


async def over_sockets(drawing: Drawing, way: Way, until_s: float) -> Real:
    """Run one drawing in real time."""
    client = CLIENTS["claude-code" if way is Way.CODE else "anthropic-sdk"]
    patience_ns = drawing.patience_ns
    client = attrs.evolve(client, broken_retries=BROKEN_RETRIES, silence_ns=patience_ns, known_ns=patience_ns)
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        server: Server = await nursery.start(partial(Server.run, Server(drawing)))
        base = await stack.enter_async_context(_door(drawing, way, server.url))
        server.begin()
        nursery.start_soon(server.weather)
        began_s = trio.current_time()
        fleet = _Fleet(drawing, client, base)
        await fleet.run(began_s + until_s)
        nursery.cancel_scope.cancel()
    return Real(
        makespan_ns=round((fleet.ended_s - began_s) * SECOND_NS),
        dead=sum(fleet.died_of.values()),
        died_of=dict(fleet.died_of),
        attempts=server.provider.arrivals,
        turns=fleet.turns,
    )
