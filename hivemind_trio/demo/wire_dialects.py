"""Bytes of the simulated provider in the format of each API; the SDKs parse them.

One class per API with the same three methods. An answer's text is as long as its tokens: one word each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, final

import attrs

from hivemind_trio.demo import rate_limit_headers
from hivemind_trio.sim import Ask, Metered, Reading

from .rate_limit_headers import CREATED


@final
@attrs.frozen(kw_only=True)
class ParsedRequest:
    """A request as the provider understands it."""

    dialect: AnswerFormat
    model: str
    stream: bool
    usage_wanted: bool
    """OpenAI Chat streams usage only when `stream_options.include_usage` is set."""
    ask: Ask


@final
@attrs.frozen(kw_only=True)
class Said:
    """An answer in whatever dialect."""

    number: int
    model: str
    tokens_in: int
    """Those that were read from a cache among them."""
    events: Sequence[int]
    """Tokens per streamed event."""
    usage_wanted: bool = True
    tokens_cached: int = 0

    @property
    def tokens_out(self) -> int:
        """Number of output tokens."""
        return sum(self.events)

    @property
    def text(self) -> str:
        """Text of the answer."""
        return "".join(words(tokens) for tokens in self.events)


@final
@attrs.frozen(kw_only=True)
class Streamed:
    """An answer as server-sent events: what begins it, one piece of bytes for each of `Said.events`, what ends it."""

    opening: bytes
    pieces: Sequence[bytes]
    closing: bytes


class AnswerFormat(Protocol):
    """Format in which an API writes its answers."""

    def whole(self, said: Said) -> bytes:
        """Return a body of `application/json`."""

    def streamed(self, said: Said) -> Streamed:
        """Return the parts of a `text/event-stream`."""

    def error(self, kind: str, message: str, dimension: Metered | None = None) -> bytes:
        """Return the body of a refusal.

        Args:
            dimension: Of a 429.
        """

    def limits(self, readings: Mapping[Metered, Reading], now_ns: int) -> Sequence[tuple[bytes, bytes]]:
        """Headers that say how the quotas stand."""


def words(tokens: int) -> str:
    """Text of that many tokens."""
    return "word " * tokens


def without_slot(path: str, body: bytes) -> bytes | None:
    """Return the answer to a request that takes no slot, such as a list of models; None for a generation."""
    match path:
        case "/" | "/v1/models":
            return _json({"object": "list", "data": [], "has_more": False})
        case "/v1/messages/count_tokens":
            counted = asked("/v1/messages", body)
            return _json({"input_tokens": counted.ask.tokens_in}) if counted else None
    return None


def asked(path: str, body: bytes) -> ParsedRequest | None:
    """Read a request; None if the path is none of ours or the body is no JSON object."""
    dialect = ANSWER_FORMATS.get(path)
    try:
        said = json.loads(body)
    except ValueError:
        return None
    if dialect is None or not isinstance(said, dict):
        return None
    # Agents and tests put what tells calls apart in the last message; the whole conversation is billed.
    messages = said.get("messages") or said.get("input") or []
    text = messages if isinstance(messages, str) else "".join(_text(message) for message in messages)
    last = messages if isinstance(messages, str) else _text(messages[-1]) if messages else ""
    most = said.get("max_tokens") or said.get("max_completion_tokens") or said.get("max_output_tokens") or 4096
    options = said.get("stream_options") or {}
    return ParsedRequest(
        dialect=dialect,
        model=str(said.get("model", "")),
        stream=said.get("stream") is True,
        usage_wanted=isinstance(options, dict) and options.get("include_usage") is True,
        ask=Ask(
            key=last,
            tokens_in=max(10, len(text) // 4),
            tokens_max_out=int(most),
            stream=said.get("stream") is True,
        ),
    )


def _text(message: Any) -> str:
    content = message.get("content", "") if isinstance(message, dict) else ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _named(event: Mapping[str, Any]) -> bytes:
    """Return a server-sent event whose name repeats its `type`, as Anthropic and Responses send them."""
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + _json(event) + b"\n\n"


@final
class Anthropic:
    """`POST /v1/messages`."""

    def _message(self, said: Said) -> dict[str, Any]:
        return {
            "id": f"msg_sim_{said.number}",
            "type": "message",
            "role": "assistant",
            "model": said.model,
            "content": [{"type": "text", "text": said.text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": self._usage(said, said.tokens_out),
        }

    def _usage(self, said: Said, tokens_out: int) -> dict[str, int]:
        """Return the usage; tokens read from a cache are no input here, and are omitted if there are none."""
        cached = {"cache_read_input_tokens": said.tokens_cached} if said.tokens_cached else {}
        return {"input_tokens": said.tokens_in - said.tokens_cached, **cached, "output_tokens": tokens_out}

    def whole(self, said: Said) -> bytes:
        """Return the body of an answer that is not streamed."""
        return _json(self._message(said))

    def streamed(self, said: Said) -> Streamed:
        """Return the events of a streamed answer."""
        begun = self._message(said) | {"content": [], "stop_reason": None, "usage": self._usage(said, 1)}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        return Streamed(
            opening=_named({"type": "message_start", "message": begun}) + _named(block) + _named({"type": "ping"}),
            pieces=[
                _named(
                    {
                        "type": "content_block_delta",
                        "index": 0,
                        "delta": {"type": "text_delta", "text": words(tokens)},
                    }
                )
                for tokens in said.events
            ],
            closing=_named({"type": "content_block_stop", "index": 0})
            + _named({"type": "message_delta", "delta": end, "usage": {"output_tokens": said.tokens_out}})
            + _named({"type": "message_stop"}),
        )

    def error(self, kind: str, message: str, dimension: Metered | None = None) -> bytes:
        """Return the body of an error."""
        return _json({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_sim"})

    def limits(self, readings: Mapping[Metered, Reading], now_ns: int) -> Sequence[tuple[bytes, bytes]]:
        """Return the rate-limit headers."""
        return rate_limit_headers.anthropic(readings, now_ns)


@final
@attrs.frozen
class OpenAIChat:
    """`POST /v1/chat/completions`; Azure's differs in what it says of limits."""

    says_limits: Callable[[Mapping[Metered, Reading], int], Sequence[tuple[bytes, bytes]]] = rate_limit_headers.openai

    def _usage(self, said: Said) -> dict[str, Any]:
        cached = {"prompt_tokens_details": {"cached_tokens": said.tokens_cached}} if said.tokens_cached else {}
        return {
            "prompt_tokens": said.tokens_in,
            "completion_tokens": said.tokens_out,
            "total_tokens": said.tokens_in + said.tokens_out,
            **cached,
        }

    def _of(self, said: Said, kind: str, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-sim-{said.number}",
            "object": kind,
            "created": CREATED,
            "model": said.model,
            "choices": choices,
        }

    def whole(self, said: Said) -> bytes:
        """Return the body of an answer that is not streamed."""
        message = {"role": "assistant", "content": said.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return _json(self._of(said, "chat.completion", [choice]) | {"usage": self._usage(said)})

    def streamed(self, said: Said) -> Streamed:
        """Return the events of a streamed answer."""

        def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return b"data: " + _json(self._of(said, "chat.completion.chunk", [choice])) + b"\n\n"

        usage = self._of(said, "chat.completion.chunk", []) | {"usage": self._usage(said)}
        return Streamed(
            opening=chunk({"role": "assistant", "content": "", "refusal": None}),
            pieces=[chunk({"content": words(tokens)}) for tokens in said.events],
            closing=chunk({}, "stop")
            + (b"data: " + _json(usage) + b"\n\n" if said.usage_wanted else b"")
            + b"data: [DONE]\n\n",
        )

    def error(self, kind: str, message: str, dimension: Metered | None = None) -> bytes:
        """Return the body of an error."""
        code = None
        if dimension is not None:
            kind, code = "requests" if dimension is Metered.REQUESTS else "tokens", "rate_limit_exceeded"
        return _json({"error": {"message": message, "type": kind, "param": None, "code": code}})

    def limits(self, readings: Mapping[Metered, Reading], now_ns: int) -> Sequence[tuple[bytes, bytes]]:
        """Return the rate-limit headers."""
        return self.says_limits(readings, now_ns)


@final
class OpenAIResponses:
    """`POST /v1/responses`."""

    def _response(self, said: Said, status: str, output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        usage = {
            "input_tokens": said.tokens_in,
            "input_tokens_details": {"cached_tokens": said.tokens_cached, "cache_write_tokens": 0},
            "output_tokens": said.tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": said.tokens_in + said.tokens_out,
        }
        return {
            "id": f"resp_sim_{said.number}",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": said.model,
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage if status == "completed" else None,
        }

    def _item(self, said: Said, status: str, content: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        identity = f"msg_sim_{said.number}"
        return {"id": identity, "type": "message", "role": "assistant", "status": status, "content": content}

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def whole(self, said: Said) -> bytes:
        """Return the body of an answer that is not streamed."""
        item = self._item(said, "completed", [self._part(said.text)])
        return _json(self._response(said, "completed", [item]))

    def streamed(self, said: Said) -> Streamed:
        """Return the events of a streamed answer."""
        begun = self._response(said, "in_progress", [])
        item = self._item(said, "completed", [self._part(said.text)])
        where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        opening: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": self._item(said, "in_progress", [])},
            {"type": "response.content_part.added", **where, "part": self._part("")},
        ]
        deltas: list[dict[str, Any]] = [
            {"type": "response.output_text.delta", **where, "delta": words(tokens), "logprobs": []}
            for tokens in said.events
        ]
        closing: list[dict[str, Any]] = [
            {"type": "response.output_text.done", **where, "text": said.text, "logprobs": []},
            {"type": "response.content_part.done", **where, "part": self._part(said.text)},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": self._response(said, "completed", [item])},
        ]
        numbered = [_named(event | {"sequence_number": n}) for n, event in enumerate(opening + deltas + closing)]
        first, last = len(opening), len(opening) + len(deltas)
        return Streamed(
            opening=b"".join(numbered[:first]), pieces=numbered[first:last], closing=b"".join(numbered[last:])
        )

    def error(self, kind: str, message: str, dimension: Metered | None = None) -> bytes:
        """Return the body of an error."""
        return OpenAIChat().error(kind, message, dimension)

    def limits(self, readings: Mapping[Metered, Reading], now_ns: int) -> Sequence[tuple[bytes, bytes]]:
        """Return the rate-limit headers."""
        return rate_limit_headers.openai(readings, now_ns)


ANSWER_FORMATS: Final[Mapping[str, AnswerFormat]] = {
    "/v1/messages": Anthropic(),
    "/v1/chat/completions": OpenAIChat(),
    "/openai/v1/chat/completions": OpenAIChat(rate_limit_headers.azure),
    "/v1/responses": OpenAIResponses(),
}
"""Path without the query -> who answers there."""
