"""Agents' clients over sockets: what they send, what they make of an answer, and when they ask again.

When they ask again is `sim`'s to say (`ClientBehaviour.pause_ns`); this is the wire around it, over the project's own
transport for httpx2. Requests carry the headers by which the proxy knows the real ones
(`proxy/request/client_profile.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from ssl import SSLContext, create_default_context
from types import MappingProxyType
from typing import Any, Final, final

import attrs
import httpx2

from hivemind_trio.model import Api
from hivemind_trio.sim import ClientBehaviour, ClientReply, Turn
from hivemind_trio.upstream import PoolTransport

PAD: Final = "."
"""What prompts are filled up with: in the virtual world a prompt is a name, and as long as it says."""

CREDENTIAL: Final = "bench"
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {"user-agent": "hivemind-bench"},
    "anthropic-sdk": {"user-agent": "AsyncAnthropic/Python 0.121.0"},
    "openai-sdk": {"user-agent": "AsyncOpenAI/Python 3.3.0"},
    "claude-code": {"user-agent": "claude-cli/2.1.0 (external, cli)", "x-stainless-lang": "js"},
    "codex": {"user-agent": "codex_cli_rs/0.60.0"},
}
_STAINLESS: Final = frozenset({"anthropic-sdk", "openai-sdk", "claude-code"})
"""Those that say which try it is, and how long they wait."""

_ANTHROPIC_VERSION: Final = "2023-06-01"


@cache
def _tls() -> SSLContext:
    """One for all of them, for it takes its time to make and nobody here speaks it."""
    return create_default_context()


@final
@attrs.define(eq=False)
class Caller:
    """One agent's client, with connections of its own."""

    client: ClientBehaviour
    api: Api
    model: str
    path: str
    credential: str = CREDENTIAL
    _transport: PoolTransport = attrs.field(init=False, factory=lambda: PoolTransport(tls=_tls()))

    async def ask(self, base: str, turn: Turn, retried: int = 0, says: Mapping[str, str] = NOTHING) -> ClientReply:
        """Send one request and read its answer to the end, or to where it breaks.

        Args:
            retried: Requests for the same turn before this one.
            says: Headers beside those that its kind sends.
        """
        silence_s = self.client.silence_ns / 1e9
        request = httpx2.Request(
            "POST",
            base + self.path,
            headers=self._headers(retried, says),
            content=_body(self.api, self.path, self.model, turn),
            extensions={"timeout": {"connect": silence_s, "read": silence_s}},
        )
        try:
            response = await self._transport.handle_async_request(request)
        except httpx2.TimeoutException:
            return ClientReply(status=0, timed_out=True, why="no byte for too long")
        except httpx2.ConnectError:
            return ClientReply(status=0, why="no connection")
        except httpx2.TransportError:
            return ClientReply(status=0, why="connection reset")
        try:
            if response.status_code == 200 and turn.stream:
                return await _read_stream(response, Reading())
            return await _read_whole(response)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._transport.aclose()

    def _headers(self, retried: int, says: Mapping[str, str]) -> dict[str, str]:
        kind = self.client.name
        said = {"content-type": "application/json", **_NAMES[kind], **says}
        if kind in _STAINLESS:
            said["x-stainless-retry-count"] = str(retried)
            if self.client.known_ns is not None:
                said["x-stainless-read-timeout"] = f"{self.client.known_ns / 1e9:g}"
        if self.api is Api.ANTHROPIC:
            return said | {"x-api-key": self.credential, "anthropic-version": _ANTHROPIC_VERSION}
        return said | {"authorization": f"Bearer {self.credential}"}


def session(client: ClientBehaviour, conversation: str) -> dict[str, str]:
    """What a client that says which session a request belongs to says of it."""
    if not client.says_job:
        return {}
    return {"session-id" if client.name == "codex" else "x-claude-code-session-id": conversation}


def _body(api: Api, path: str, model: str, turn: Turn) -> bytes:
    """As long as the prompt should be: four characters a token. What it has in common with others comes first, as a
    system prompt, and then its name."""
    prompt = turn.prompt.ljust(4 * (turn.tokens - turn.prefix_tokens), PAD)
    common = turn.prefix.ljust(4 * turn.prefix_tokens, PAD)
    asked: dict[str, Any] = {"model": model, "stream": turn.stream}
    if path.endswith("/responses"):
        asked |= {"max_output_tokens": turn.tokens_max_out, "input": prompt}
        asked |= {"instructions": common} if common else {}
    else:
        system = [{"role": "system", "content": common}] if common and api is not Api.ANTHROPIC else []
        asked |= {"system": common} if common and not system else {}
        asked |= {"max_tokens": turn.tokens_max_out, "messages": [*system, {"role": "user", "content": prompt}]}
        if turn.stream and api is not Api.ANTHROPIC:
            asked["stream_options"] = {"include_usage": True}
    return json.dumps(asked).encode()


# ---- answers ----


async def _read_whole(response: httpx2.Response) -> ClientReply:
    status = response.status_code
    try:
        body = await response.aread()
    except httpx2.TimeoutException:
        return ClientReply(status=0, timed_out=True, why="no byte for too long")
    except httpx2.TransportError:
        return ClientReply(status=0, why="connection reset")
    if status == 200:
        reading = Reading()
        reading.usage(json.loads(body).get("usage"))
        return ClientReply(status=200, whole=True, tokens=reading.tokens)
    after_s = response.headers.get("retry-after", "")
    return ClientReply(
        status=status,
        retry_after_ns=int(after_s) * 10**9 if after_s.isdecimal() else None,
        final=response.headers.get("x-should-retry") == "false",
        why=f"{status} {response.headers.get('x-hivemind-reason', '')}".strip(),
    )


async def _read_stream(response: httpx2.Response, reading: Reading) -> ClientReply:
    rest = b""
    try:
        async for piece in response.aiter_raw():
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                reading.event(event)
    except httpx2.TimeoutException:
        why = "no byte for too long"
        return ClientReply(status=0, timed_out=True, broken=True, tokens=reading.tokens, why=why)
    except httpx2.TransportError:
        return ClientReply(status=200, broken=True, tokens=reading.tokens, why="the stream broke")
    if reading.failed or not reading.ended:
        why = reading.failed or "the stream ended early"
        return ClientReply(status=200, broken=True, tokens=reading.tokens, why=why)
    return ClientReply(status=200, whole=True, tokens=reading.tokens)


@final
@attrs.define(eq=False)
class Reading:
    """What a stream has said so far, in whichever dialect."""

    tokens_in: int = 0
    tokens_out: int = 0
    ended: bool = False
    failed: str = ""

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def event(self, event: bytes) -> None:
        """Take one server-sent event in; keep-alive events and comments count for nothing."""
        data = b"".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        if not data:
            return
        if data == b"[DONE]":
            self.ended = True
            return
        said: dict[str, Any] = json.loads(data)
        kind = said.get("type")
        if kind == "error" or said.get("error"):
            error = said.get("error")
            self.failed = f"mid-stream: {error.get('type') if isinstance(error, dict) else error}"
        elif kind in ("message_stop", "response.completed"):
            self.ended = True
        elif kind == "content_block_delta":
            # The final count comes with the last events; until then, a word is a token.
            self.tokens_out += said["delta"]["text"].count("word")
        elif kind == "response.output_text.delta":
            self.tokens_out += said["delta"].count("word")
        elif said.get("choices"):
            self.tokens_out += (said["choices"][0]["delta"].get("content") or "").count("word")
        for holder in (said, said.get("message"), said.get("response")):
            if isinstance(holder, dict):
                self.usage(holder.get("usage"), begun=kind == "message_start")

    def usage(self, usage: Mapping[str, Any] | None, *, begun: bool = False) -> None:
        """What a provider says that it bills."""
        if not usage:
            return
        tokens_in = usage.get("input_tokens", usage.get("prompt_tokens"))
        if tokens_in is not None:
            self.tokens_in = tokens_in + usage.get("cache_read_input_tokens", 0)
        tokens_out = usage.get("output_tokens", usage.get("completion_tokens"))
        if tokens_out is not None and not begun:
            self.tokens_out = tokens_out
