"""A provider on a loopback port that speaks to Claude Code and Codex, with a plan window that closes for a while.

Its answers are one short text, streamed as the two APIs do. While the window is closed every call is a 429 with the
plan's headers, as Anthropic sends them at a session limit. The prompts of each session are kept: what a session was
told, and how often.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import attrs

SESSIONS: Final = ("x-claude-code-session-id", "session-id", "session_id", "thread-id")
CLAIM: Final = "five_hour"


@attrs.define(eq=False)
class PlanProvider:
    """What the provider does, and what it has seen."""

    closed: tuple[float, float] = (0.0, 0.0)
    """Seconds after the first call when the window closes, and when it opens again."""
    answer_s: float = 0.0
    """How long an answer takes."""
    used: dict[str, float] = attrs.field(factory=lambda: {"5h": 0.3})
    """Window -> the used share that good answers tell of."""
    resets_s: float = 18_000
    """When these windows begin anew, in seconds from an answer."""
    overage: bool = False
    """The account pays beyond its plan."""
    never_pays: str = ""
    """Why it cannot, as all answers tell; empty: they do not."""
    spent: set[str] = attrs.field(factory=set)
    """Credentials whose plan is used up; their calls are refused until `resets_s`."""
    limited: set[str] = attrs.field(factory=set)
    """Credentials that are over their requests per minute; their calls are refused for `limited_s`."""
    limited_s: int = 30
    counts: int | None = None
    """Answer of its free endpoint that counts a prompt; None: it has none."""
    counts_s: float = 0.0
    """How long that takes."""
    counted: list[tuple[str, str, dict[str, Any]]] = attrs.field(init=False, factory=list)
    """Credential, path and body of each call that asked for a count."""
    message: str = "This request would exceed your account's rate limit."
    """Words of a refusal."""
    answered: dict[str, int] = attrs.field(init=False, factory=dict)
    """Session -> calls that were answered."""
    keeps_bodies: bool = False
    bodies: list[tuple[str, bytes]] = attrs.field(init=False, factory=list)
    """User-agent and body of each call."""
    credentials: list[str] = attrs.field(init=False, factory=list)
    """Of each call, in the order in which they came."""
    refused: int = attrs.field(init=False, default=0)
    inflight_max: int = attrs.field(init=False, default=0)
    _inflight: int = attrs.field(init=False, default=0)
    _began_s: float | None = attrs.field(init=False, default=None)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def arrives(self) -> float | None:
        """Note a call; the seconds until the window opens, if it is closed."""
        with self._lock:
            now_s = time.monotonic()  # noqa: TID251 - a provider has a clock of its own
            if self._began_s is None:
                self._began_s = now_s
            since_s = now_s - self._began_s
            if self.closed[0] <= since_s < self.closed[1]:
                self.refused += 1
                return self.closed[1] - since_s
            self._inflight += 1
            self.inflight_max = max(self.inflight_max, self._inflight)
            return None

    def leaves(self, session: str) -> None:
        """Note that a call was answered."""
        with self._lock:
            self._inflight -= 1
            self.answered[session] = self.answered.get(session, 0) + 1


@contextmanager
def serving(provider: PlanProvider) -> Iterator[str]:
    """Serve within the context; its base URL."""

    class Handler(_Handler):
        plan = provider

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    plan: PlanProvider

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base class
        pass

    def do_HEAD(self) -> None:
        self._send(200, {}, b"")

    def do_GET(self) -> None:
        self._send(404, {"content-type": "application/json"}, b"{}")

    def _count(self, body: dict[str, Any]) -> None:
        self.plan.counted.append((self.headers.get("x-api-key", ""), self.path, body))
        time.sleep(self.plan.counts_s)
        if self.plan.counts is None:
            self._send(404, {"content-type": "application/json"}, b"{}")
            return
        name = "input_tokens" if "count_tokens" in self.path else "totalTokens"
        self._send(200, {"content-type": "application/json"}, json.dumps({name: self.plan.counts}).encode())

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}"
        body = json.loads(text)
        if self.path.partition("?")[0].endswith(("/count_tokens", ":countTokens")):
            self._count(body)
            return
        if not self.path.partition("?")[0].endswith(("/messages", "/responses")):
            self._send(404, {"content-type": "application/json"}, b"{}")
            return
        if self.plan.keeps_bodies:
            self.plan.bodies.append((self.headers.get("user-agent", ""), text))
        credential = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        self.plan.credentials.append(credential)
        if credential in self.plan.spent:
            self.plan.refused += 1
            self._refuse(self.plan.resets_s)
            return
        if credential in self.plan.limited:
            self.plan.refused += 1
            error = {"type": "rate_limit_error", "message": "This request would exceed 50 requests per minute."}
            body = json.dumps({"type": "error", "error": error}).encode()
            self._send(429, {"content-type": "application/json", "retry-after": str(self.plan.limited_s)}, body)
            return
        left_s = self.plan.arrives()
        if left_s is not None:
            self._refuse(left_s)
            return
        try:
            time.sleep(self.plan.answer_s)
            stream = bool(body.get("stream"))
            model = str(body.get("model"))
            if "/responses" in self.path:
                answer = _sse(_responses())
            elif stream:
                answer = _sse(_messages(model))
            else:
                answer = json.dumps(_message(model) | {"content": [{"type": "text", "text": "done"}]}).encode()
            kind = "text/event-stream" if stream else "application/json"
            told = self._told("allowed", self.plan.used, self.plan.resets_s)
            if self.plan.overage:
                told["anthropic-ratelimit-unified-overage-in-use"] = "true"
            self._send(200, {"content-type": kind, **told}, answer)
        finally:
            self.plan.leaves(next((self.headers[name] for name in SESSIONS if name in self.headers), ""))

    def _refuse(self, left_s: float) -> None:
        error = {"type": "rate_limit_error", "message": self.plan.message}
        body = json.dumps({"type": "error", "error": error}).encode()
        headers = {"retry-after": f"{max(1, round(left_s + 0.5))}", **self._told("rejected", {"5h": 1.0}, left_s)}
        self._send(429, {"content-type": "application/json", **headers}, body)

    def _told(self, status: str, used: dict[str, float], left_s: float) -> dict[str, str]:
        told = _plan_headers(status, used, left_s)
        if self.plan.never_pays:
            told["anthropic-ratelimit-unified-overage-disabled-reason"] = self.plan.never_pays
        return told

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _plan_headers(status: str, used: dict[str, float], left_s: float) -> dict[str, str]:
    reset = str(int(time.time() + left_s + 1))  # noqa: TID251 - a reset is read against a real clock
    name = "anthropic-ratelimit-unified"
    return {
        f"{name}-status": status,
        f"{name}-reset": reset,
        f"{name}-representative-claim": CLAIM,
        **{
            f"{name}-{window}-{part}": text
            for window, share in used.items()
            for part, text in (("status", status), ("reset", reset), ("utilization", str(share)))
        },
    }


def _sse(events: list[dict[str, Any]]) -> bytes:
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()


def _message(model: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1_000, "output_tokens": 5},
    }


def _messages(model: str) -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "message": _message(model) | {"stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


def _responses() -> list[dict[str, Any]]:
    text = {"type": "output_text", "text": "done", "annotations": []}
    item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    usage = {
        "input_tokens": 1_000,
        "output_tokens": 5,
        "total_tokens": 1_005,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "done",
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item | {"content": [text]}},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "usage": usage}},
    ]
