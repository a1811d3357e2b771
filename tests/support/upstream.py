"""A provider behind httpx2's transport interface: slow, stalling, refusing, breaking off, and counted while it does.

It raises what httpx2's own transport raises, closes what is not read to the end, and yields pieces one by one, so that
who reads too eagerly or forgets to close is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, final

import attrs
import httpx2
import trio

Headers = list[tuple[bytes, bytes]]

STALL: Final = trio.sleep_forever
"""As a step of an answer: nothing comes any more, and the connection stays open."""

Step = bytes | float | Exception | trio.Event | object
"""A piece of a body, seconds before the next, what breaks it off, what it waits for, or STALL."""

REFUSED: Final = httpx2.ConnectError("All connection attempts failed")
RESET: Final = httpx2.ReadError("[Errno 104] Connection reset by peer")
EARLY_END: Final = httpx2.RemoteProtocolError(
    "peer closed connection without sending complete message body (incomplete chunked read)"
)
HUNG_UP: Final = httpx2.RemoteProtocolError("Server disconnected without sending a response.")
GARBAGE: Final = httpx2.RemoteProtocolError("illegal status line: bytearray(b'\\x16\\x03\\x01 this is not HTTP')")

EVENT_STREAM: Final = (b"Content-Type", b"text/event-stream; charset=utf-8")
JSON: Final = (b"Content-Type", b"application/json")


@final
@attrs.frozen(kw_only=True)
class Reply:
    """What one request gets, step by step."""

    before: tuple[Step, ...] = ()
    """Before the head."""
    status: int = 200
    headers: Headers = attrs.field(factory=lambda: [JSON])
    steps: Iterable[Step] = (b'{"ok": true}',)


@final
@attrs.frozen
class Request:
    """As the provider sees it."""

    method: str
    target: bytes
    headers: Headers
    body: bytes
    url: httpx2.URL

    def values(self, name: bytes) -> list[bytes]:
        """All values of a header."""
        return [value for key, value in self.headers if key.lower() == name]


@attrs.define(eq=False)
class FakeProvider(httpx2.AsyncBaseTransport):
    """Answers each request by `play`, which may look at it."""

    play: Callable[[Request], Reply] = lambda _: Reply()
    requests: list[Request] = attrs.field(init=False, factory=list)
    open_at: Counter[bytes] = attrs.field(init=False, factory=Counter)
    """Target -> exchanges that are going on, from the request to the close."""
    most_at: Counter[bytes] = attrs.field(init=False, factory=Counter)
    """Target -> the most at the same time."""
    pulled_bytes: int = attrs.field(init=False, default=0)
    """Of all bodies, by whoever reads them."""
    cancelled: int = attrs.field(init=False, default=0)
    closed: bool = attrs.field(init=False, default=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The real ones are cancelled like this one: in the middle, and then nothing of the exchange is left open."""
        target = request.extensions["target"]
        self.open_at[target] += 1
        self.most_at[target] = max(self.most_at[target], self.open_at[target])
        try:
            stream = request.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            body = b"".join([piece async for piece in stream])
            asked = Request(request.method, target, list(request.headers.raw), body, request.url)
            self.requests.append(asked)
            reply = self.play(asked)
            await trio.lowlevel.checkpoint()
            for step in reply.before:
                await _take(step)
        except BaseException as error:
            self.over(target, isinstance(error, trio.Cancelled))
            raise
        return httpx2.Response(reply.status, headers=reply.headers, stream=_Body(self, target, reply.steps))

    @property
    def open(self) -> int:
        """Exchanges that are going on."""
        return self.open_at.total()

    def over(self, target: bytes, cancelled: bool) -> None:
        """One exchange is closed."""
        self.open_at[target] -= 1
        self.cancelled += cancelled

    async def aclose(self) -> None:
        """Once, at the end."""
        self.closed = True


@attrs.define(eq=False)
class _Body(httpx2.AsyncByteStream):
    _provider: FakeProvider
    _target: bytes
    _steps: Iterable[Step]
    _cancelled: bool = attrs.field(init=False, default=False)
    _closed: bool = attrs.field(init=False, default=False)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            for step in self._steps:
                await trio.lowlevel.checkpoint()
                if isinstance(step, bytes):
                    self._provider.pulled_bytes += len(step)
                    yield step
                else:
                    await _take(step)
        except (trio.Cancelled, GeneratorExit):
            self._cancelled = True
            raise

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._provider.over(self._target, self._cancelled)


async def _take(step: Step) -> None:
    match step:
        case int() | float():
            await trio.sleep(step)
        case Exception():
            raise step
        case trio.Event():
            await step.wait()
        case _:
            assert step is STALL
            await trio.sleep_forever()
