"""What a request asks for, as far as its path, headers and body tell. Any bytes have an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, final

import attrs
import msgspec

from hivemind_trio.model import Api

from ._bodies import decoded
from ._paths import endpoint

BYTES_PER_TOKEN: Final = 4
"""Of JSON text, until usage has taught better: English and code have 3.5 to 4.5 in the tokenizers that are public."""

IMAGE_TOKENS: Final = 1_500
"""What a picture counts for: near Anthropic's width × height / 750 at 1.15 megapixels, and OpenAI's high detail."""

_BASE64: Final = re.compile(rb'"(?:data:[\w.+/-]{1,100};base64,)?([A-Za-z0-9+/_=-]{1024,})"')
_PICTURE: Final = (b'"image"', b'"image_url"', b'"input_image"', b'"inlineData"', b'"inline_data"', b'"images"')

_MARKS: Final = (b"image", b"nline", b"base64", b"audio")
"""One of these is in every call that holds a picture, a sound or a document."""


@final
@attrs.frozen(kw_only=True)
class Recognised:
    """A request, understood as far as it can be."""

    apis: tuple[Api, ...]
    """The dialects it may be in, likeliest first; empty: none that we know."""
    generates: bool
    """It makes the provider generate, so it needs a slot."""
    model: str = ""
    stream: bool = False
    tools: bool = False
    images: bool = False
    tokens_in: int = 0
    tokens_max_out: int = 0
    metadata: Mapping[str, str] = attrs.field(factory=dict)
    user: str = ""
    """Whom the body says it is for: `metadata.user_id`, `safety_identifier`, `user` or `prompt_cache_key`."""


_ABSENT: Final = msgspec.Raw()


class _Body(msgspec.Struct):
    """The fields that matter, each raw: a wrong type in one must not hide the others."""

    model: msgspec.Raw = _ABSENT
    stream: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    max_tokens: msgspec.Raw = _ABSENT
    max_completion_tokens: msgspec.Raw = _ABSENT
    max_output_tokens: msgspec.Raw = _ABSENT
    metadata: msgspec.Raw = _ABSENT
    user: msgspec.Raw = _ABSENT
    safety_identifier: msgspec.Raw = _ABSENT
    prompt_cache_key: msgspec.Raw = _ABSENT
    messages: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    contents: msgspec.Raw = _ABSENT
    generationConfig: msgspec.Raw = _ABSENT  # noqa: N815 - Gemini's spelling
    options: msgspec.Raw = _ABSENT


_DECODER: Final = msgspec.json.Decoder(_Body)
_FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises at bad JSON, at bad UTF-8 in a text that it reads, and at nesting deeper than Python's stack."""


def recognise(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Recognised:
    """Understand a request.

    Args:
        path: Without query, and without a prefix of ours.
        headers: Lower-case names.
        body: As received; a compressed one is decoded here, as a copy.
    """
    place = endpoint(path, headers)
    if method != "POST":
        return Recognised(apis=place.apis, generates=False, model=place.model)
    text = decoded(body, headers.get("content-encoding", ""))
    fields = _fields(text)
    if fields is None:
        return Recognised(
            apis=place.apis, generates=bool(place.generates), model=place.model, stream=bool(place.streams)
        )
    generates = place.generates
    if generates is None:
        asks = any(bytes(part) for part in (fields.messages, fields.input, fields.prompt, fields.contents))
        generates = asks and bool(bytes(fields.model))
    stream = _json(fields.stream, place.streams if place.streams is not None else place.apis == (Api.OLLAMA,))
    metadata = _json(fields.metadata, {})
    metadata = {str(k): v for k, v in metadata.items() if isinstance(v, str)} if isinstance(metadata, dict) else {}
    tools = bytes(fields.tools)
    pictures, letters = _sizes(text)
    return Recognised(
        apis=place.apis,
        generates=generates,
        model=place.model or _text(fields.model),
        stream=stream is True,
        tools=len(tools) > 2 and tools != b"null",
        images=pictures > 0,
        tokens_in=letters // BYTES_PER_TOKEN + pictures * IMAGE_TOKENS,
        tokens_max_out=_output_max(fields),
        metadata=metadata,
        user=metadata.get("user_id")
        or _text(fields.safety_identifier)
        or _text(fields.user)
        or _text(fields.prompt_cache_key),
    )


def _fields(text: bytes) -> _Body | None:
    try:
        return _DECODER.decode(text)
    except _FAULTS:
        return None


def _json(raw: msgspec.Raw, default: Any) -> Any:
    """The value, or the default where there is none or it does not read."""
    if raw is _ABSENT:
        return default
    try:
        return msgspec.json.decode(raw)
    except _FAULTS:
        return default


def _text(raw: msgspec.Raw) -> str:
    value = _json(raw, "")
    return value if isinstance(value, str) else ""


def _count(raw: msgspec.Raw) -> int:
    value = _json(raw, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def _output_max(fields: _Body) -> int:
    for raw in (fields.max_tokens, fields.max_completion_tokens, fields.max_output_tokens):
        if raw is not _ABSENT and (limit := _count(raw)):
            return limit
    for raw, name in ((fields.generationConfig, "maxOutputTokens"), (fields.options, "num_predict")):
        inner = _json(raw, {})
        limit = inner.get(name, 0) if isinstance(inner, dict) else 0
        if isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit < 2**53:
            return limit
    return 0


def _sizes(text: bytes) -> tuple[int, int]:
    """Pictures, and bytes that are not base64: a picture of a megabyte is not 250,000 tokens."""
    # Most calls hold none; one look for what every such call must hold is a tenth of looking for them all.
    if not any(mark in text for mark in _MARKS):
        return 0, len(text)
    pictures = sum(text.count(mark) for mark in _PICTURE)
    blobs = [len(match[1]) for match in _BASE64.finditer(text)] if len(text) > 1_024 else []
    return pictures, len(text) - sum(blobs)
