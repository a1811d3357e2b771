"""An agent as the listener shows it to an app: it says things in pieces, reads when it likes, and hangs up.

It keeps what `hivemind_trio.listen` promises and demands: `send` never fails, and after a hang-up it drops what it is
given; nothing but `hivemind.on_disconnect` tells of one in time; a body is exactly as long as its content-length says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, final

import attrs
import trio

from hivemind_trio.listen import App, Message, Scope

Headers = list[tuple[bytes, bytes]]

_BODYLESS: Final = frozenset({204, 304})


@final
@attrs.define(eq=False)
class Agent:
    """One request and what came back.

    `takes_bytes` is what fits between us and an agent that is not `reading`: the kernel's buffers. None: it reads.
    """

    method: str = "POST"
    target: bytes = b"/v1/messages"
    """Path and query as on the wire."""
    headers: Headers = attrs.field(factory=list)
    body: Iterable[bytes] = (b'{"model":"claude-x","messages":[]}',)
    """In the pieces in which it arrives."""
    piece_delay_s: float = 0.0
    """Before each of them."""
    peer: tuple[str, int] | None = ("127.0.0.1", 50_000)
    takes_bytes: int | None = None
    reading: trio.Event = attrs.field(factory=trio.Event)

    status: int = attrs.field(init=False, default=0)
    answer_headers: Headers = attrs.field(init=False, factory=list)
    pieces: list[bytes] = attrs.field(init=False, factory=list)
    whole: bool = attrs.field(init=False, default=False)
    """The answer came to a regular end."""
    aborted: bool = attrs.field(init=False, default=False)
    gone: bool = attrs.field(init=False, default=False)
    served: bool = attrs.field(init=False, default=False)
    """The app has returned."""
    done: trio.Event = attrs.field(init=False, factory=trio.Event)
    began: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set at the answer's head."""
    _told: list[Callable[[], object]] = attrs.field(init=False, factory=list)
    _request_over: bool = attrs.field(init=False, default=False)
    _left: trio.Event = attrs.field(init=False, factory=trio.Event)
    _length: int | None = attrs.field(init=False, default=None)
    _unread: Any = attrs.field(init=False, default=None)

    # ---- what a test does ----

    async def call(self, app: App, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be served; returns when the app has."""
        task_status.started()
        try:
            await app(self.scope(), self._receive, self._send)
            self.served = True
        finally:
            self.done.set()

    def hang_up(self) -> None:
        """Go away, now."""
        if not (self.gone or self.whole or self.aborted):
            self.gone = True
            self._left.set()
            for tell in self._told:
                tell()

    @property
    def answer(self) -> bytes:
        """The body so far."""
        return b"".join(self.pieces)

    @property
    def error(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.answer)

    def header(self, name: bytes) -> bytes | None:
        """The value of an answer's header that comes once; None without one."""
        values = [value for key, value in self.answer_headers if key.lower() == name]
        assert len(values) <= 1, f"{name!r} came {len(values)} times"
        return values[0] if values else None

    # ---- what the app sees ----

    def scope(self) -> Scope:
        path, _, query = self.target.partition(b"?")
        return {
            "type": "http",
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
            "client": self.peer,
            "server": ("127.0.0.1", 8787),
            "state": {},
            "extensions": {"hivemind.on_disconnect": self._on_disconnect, "hivemind.abort": self._abort},
        }

    def _on_disconnect(self, tell: Callable[[], object]) -> None:
        self._told.append(tell)
        if self.gone:
            tell()

    def _abort(self) -> None:
        if not self.whole:
            self.aborted = True
        self._left.set()

    async def _receive(self) -> Message:
        if self._unread is None:
            self._unread = iter(self.body)
        if not self._request_over:
            with trio.move_on_after(self.piece_delay_s):
                await self._left.wait()
            if not self.gone:
                piece = next(self._unread, None)
                self._request_over = piece is None
                return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if self.gone or self.whole or self.aborted:
            return
        match message["type"]:
            case "http.response.start":
                assert not self.status, "a second head"
                assert 200 <= message["status"] <= 999
                self.status = message["status"]
                self.answer_headers = list(message["headers"])
                length = self.header(b"content-length")
                bodyless = self.method == "HEAD" or self.status in _BODYLESS
                self._length = None if length is None or bodyless else int(length)
                self.began.set()
            case "http.response.body":
                assert self.status, "a body without a head"
                await self._take(message.get("body", b""))
                if not message.get("more_body", False):
                    assert self._length in (None, len(self.answer)), "not as long as content-length said"
                    self.whole = True
            case other:
                raise AssertionError(f"unexpected {other}")

    async def _take(self, piece: bytes) -> None:
        assert self._length is None or len(self.answer) + len(piece) <= self._length, "longer than content-length said"
        full = self.takes_bytes is not None and len(self.answer) + len(piece) > self.takes_bytes
        if full:
            await self.reading.wait()
        self.pieces.append(piece)
