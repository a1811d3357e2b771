"""The ASGI application that agents talk to."""

from __future__ import annotations

import secrets as random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final

import trio

from hivemind_trio.listen import Receive, Scope, Send
from hivemind_trio.model import REJECTIONS, Reason, SecretRef, rejection_text
from hivemind_trio.policy import Program
from hivemind_trio.proxy.request import guard as guard
from hivemind_trio.runtime import Engine
from hivemind_trio.upstream import Upstream
from hivemind_trio.wire import endpoint

from .access_record import CallRecord
from .active_policy import InForce
from .counting.prompt_counts import PromptCounts
from .error_responses import refusal
from .exchange import Exchange
from .own_priorities import OwnPriorities
from .plan_refusals import PlanRefusals
from .request.asker import Asker, asker_of
from .request.body_memory import BODIES_BYTES, BodyMemory
from .request.head import RequestHead
from .stepped_work import StepQueue

READY: Final = "/readyz"
HEALTH: Final = ("/healthz", READY)
"""Probes of orchestrators: answered here and not recorded."""
HEALTH_METHODS: Final = ("GET", "HEAD")

TOOLS: Final = b"/mcp"
"""Path of the agents' tools."""

ToolsApp = Callable[[Scope, Receive, Send, Asker], Awaitable[None]]

NO_WEBSOCKETS: Final = rejection_text(Reason.UPGRADE_REJECTED)

BY_STATUS: Final = {REJECTIONS[reason].status: reason for reason in (Reason.HEADER_TOO_LARGE, Reason.PROXY_OVERLOADED)}


@final
class Door:
    """Serves agents over an engine and an upstream. `use` gives it a policy; without one it serves nobody.

    It relies on two extensions of `hivemind_trio.listen`: `hivemind.on_disconnect`, to learn of a hang-up without a
    task of its own, and `hivemind.abort`, because an answer that broke off must not look like one that ended.

    Args:
        alias_key: Key of the names that stand for credentials, 32 bytes; empty: one for this process.
        bodies_max: Bytes of request bodies that all calls together may hold.
    """

    def __init__(
        self,
        engine: Engine,
        upstream: Upstream,
        *,
        on_call: Callable[[CallRecord], None] | None = None,
        alias_key: bytes = b"",
        bodies_max: int = BODIES_BYTES,
    ) -> None:
        self._engine = engine
        self._upstream = upstream
        self._on_call = on_call
        self._in_force: InForce | None = None
        self.tools: ToolsApp | None = None
        """Answers agents at `TOOLS`; None: that is a path like any other."""
        self.priorities = OwnPriorities()
        self.exchanges: dict[str, Exchange] = {}
        """Calls that are not over, by the id in `x-hivemind-call`, in order of arrival."""
        self._boot = random.token_hex(3)
        self._calls = 0
        self._turns = StepQueue()
        self.bodies = BodyMemory(bodies_max)
        self._plan_refusals = PlanRefusals()
        self.counts = PromptCounts(upstream, self._turns)
        self._alias_key = alias_key or random.token_bytes(32)

    def use(self, program: Program, secrets: Mapping[SecretRef, str]) -> None:
        """From here on calls are served by this policy. Load it into the engine in the same step."""
        self._in_force = InForce.of(program, secrets)

    def current(self) -> InForce:
        """Return the running policy and its parts."""
        assert self._in_force is not None, "the door was opened without a policy"
        return self._in_force

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3."""
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "websocket":
                await self._refuse_websocket(scope, receive, send)
            case other:
                raise NotImplementedError(f"no ASGI scope of type {other} is served here")

    def cut_off(self) -> None:
        """End every call that is not over, and tell its agent."""
        for exchange in list(self.exchanges.values()):
            exchange.cut_off()

    def turned_away(self, status: int, peer: str, bytes_out: int) -> None:
        """Record a request that the listener refused: its head was too large or malformed, or the loop lags."""
        reason = BY_STATUS.get(status, Reason.BAD_REQUEST)
        self._refused(
            CallRecord(
                id=self._next_id(), caller=peer, status=status, rejected=True, reason=reason, bytes_out=bytes_out
            )
        )

    def _refused(self, record: CallRecord) -> None:
        if self._on_call is not None:
            self._on_call(record)

    def _next_id(self) -> str:
        self._calls += 1
        return f"{self._boot}-{self._calls}"

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in HEALTH:
            await self._say_health(scope, send)
            return
        if self.tools is not None and scope["path"].endswith("/mcp"):
            head = RequestHead.of(scope)
            if head.path == TOOLS:
                await self._serve_tools(self.tools, head, (scope, receive, send))
                return
        extensions = scope["extensions"]
        exchange = Exchange(
            engine=self._engine,
            upstream=self._upstream,
            current=self.current,
            rules=self.current(),
            call_id=self._next_id(),
            head=RequestHead.of(scope),
            send=send,
            abort=extensions["hivemind.abort"],
            turns=self._turns,
            bodies=self.bodies,
            alias_key=self._alias_key,
            plan_refusals=self._plan_refusals,
            priorities=self.priorities,
            counts=self.counts,
            can_trail="http.response.trailers" in extensions,
        )
        self.exchanges[exchange.call_id] = exchange
        try:
            with trio.CancelScope() as here:
                exchange.scope = here
                # ASGI lets send() succeed after the agent has hung up; this is the only sign there is.
                extensions["hivemind.on_disconnect"](here.cancel)
                await exchange.run(receive)
            if here.cancelled_caught and exchange.ended_by is not None:
                await exchange.end_cancelled(exchange.ended_by)
        finally:
            del self.exchanges[exchange.call_id]
            self.bodies.give_back(exchange.body_bytes)
            if self._on_call is not None:
                self._on_call(exchange.record())
            exchange.patience = None  # its callbacks refer to the exchange

    async def _serve_tools(self, tools: ToolsApp, head: RequestHead, asgi: tuple[Scope, Receive, Send]) -> None:
        """Have an agent's tools answer, if calls of this agent would be accepted."""
        scope, receive, send = asgi
        rules = self.current()
        asker = asker_of(head, rules.program, rules.tokens, self._alias_key)
        if isinstance(asker, Asker):
            with trio.CancelScope() as here:
                scope["extensions"]["hivemind.on_disconnect"](here.cancel)
                await tools(scope, receive, send, asker)
            return
        answer = refusal(None, *asker)
        peer = ":".join(map(str, head.peer)) if head.peer is not None else ""
        self._refused(
            CallRecord(
                id=self._next_id(), caller=peer, method=head.method, path=head.path_text, status=answer.status,
                rejected=True, reason=asker[0], bytes_out=len(answer.body),
            )
        )  # fmt: skip
        headers = [*answer.headers, (b"x-hivemind-reason", str(asker[0]).encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _say_health(self, scope: Scope, send: Send) -> None:
        """Answer an orchestrator's probe: whether the process serves, or whether it takes new calls."""
        method, path = scope["method"], scope["path"]
        why = guard.refused(RequestHead.of(scope), self.current().program.server)
        if why is None and method not in HEALTH_METHODS:
            words = rejection_text(Reason.METHOD_REJECTED, "health", method=method, path=path)
            why = Reason.METHOD_REJECTED, words
        if why is not None:
            answer = refusal(None, *why)
            status, body = answer.status, answer.body
        elif path == READY and self._engine.draining:
            status, body = 503, b'{"status":"draining"}'
        else:
            status, body = 200, b'{"status":"ok"}'
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers.append((b"cache-control", b"no-store"))
        if status == 405:
            headers.append((b"allow", b", ".join(one.encode() for one in HEALTH_METHODS)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    async def _refuse_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": NO_WEBSOCKETS})
            return
        head = RequestHead.of({**scope, "method": "GET"})
        apis = endpoint(head.path_text, head.words).apis
        why = guard.refused(head, self.current().program.server) or (Reason.UPGRADE_REJECTED, NO_WEBSOCKETS)
        answer = refusal(next(iter(apis), None), *why)
        headers = [*answer.headers, (b"x-hivemind-reason", str(why[0]).encode())]
        if why[0] is Reason.UPGRADE_REJECTED:
            # RFC 9110 wants a 426 to name what is spoken instead.
            headers += [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")]
        peer = ":".join(map(str, head.peer)) if head.peer is not None else ""
        self._refused(
            CallRecord(
                id=self._next_id(), caller=peer, method="GET", path=head.path_text, status=answer.status,
                rejected=True, reason=why[0], bytes_out=len(answer.body),
            )
        )  # fmt: skip
        await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": answer.body})
