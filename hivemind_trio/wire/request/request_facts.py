"""Facts of a request, from its path, headers and body. Any bytes have an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import attrs
import msgspec

from hivemind_trio.dialects import IN_ORDER
from hivemind_trio.model import Api
from hivemind_trio.wire.body.bodies import decoding
from hivemind_trio.wire.body.body_fields import ABSENT, FAULTS, fields_of, len_of, raw_struct, union, values_of
from hivemind_trio.wire.body.steps import STEP_BYTES, Steps, Text, done

from .client_tokens import client_tokens
from .endpoints import endpoint

IMAGE_TOKENS: Final = 1_500
"""Tokens of a picture: near Anthropic's width × height / 750 at 1.15 megapixels, and OpenAI's high detail."""

_BLOB_BYTES_MIN: Final = 1_024
_BLOB: Final = re.compile(rb'"(?:data:[\w.+/-]{1,100};base64,)?([A-Za-z0-9+/_=-]{1024,}+)')
_BLOB_HEAD_BYTES: Final = 1_200
"""As much as that expression needs to see to match."""
_LETTERS: Final = re.compile(rb"[A-Za-z0-9+/_=-]++")
_PICTURE: Final = re.compile(b"|".join(dict.fromkeys(one for dialect in IN_ORDER for one in dialect.request.pictures)))
_PICTURE_BYTES: Final = 64
"""As much as that expression needs to see to match."""

METADATA_BYTES_MAX: Final = 64 * 1024
"""Largest `metadata` that is read, as JSON. The APIs allow 16 words of 512 letters."""

NAME_BYTES_MAX: Final = 4 * 1024
"""Largest name of a model or user that is read, as JSON."""

LIMITS_BYTES_MAX: Final = 1024 * 1024
"""Largest `generationConfig` or `options` that is read, as JSON; it may hold the schema of an answer."""

_SHORT_BYTES: Final = 32

MARKS: Final = (b"image", b"nline", b"base64", b"audio")
"""One of these is in every call that holds a picture, a sound or a document."""


@final
@attrs.frozen(kw_only=True)
class Recognised:
    """A request, understood as far as it can be."""

    apis: tuple[Api, ...]
    """The dialects it may be in, likeliest first; empty: none that we know."""
    generates: bool
    """True if the provider generates for it, so that it needs a slot."""
    model: str = ""
    stream: bool = False
    tools: bool = False
    images: bool = False
    client: str = ""
    """Name of the agent's program, by its user-agent; empty: none that we know."""
    tokens_in: int = 0
    tokens_max_out: int = 0
    tokens_thinking: int = 0
    """Budget of thinking that the limit of the output must exceed; 0: none."""
    metadata: Mapping[str, str] = attrs.field(factory=dict)
    user: str = ""
    """Whom the body says it is for: `metadata.user_id`, `safety_identifier`, `user` or `prompt_cache_key`."""


_FORMATS: Final = tuple(dialect.request for dialect in IN_ORDER)
_PROMPT: Final = union(one.prompt for one in _FORMATS)
_OUTPUT_MAX: Final = union(one.output_max for one in _FORMATS)
_USER: Final = union(one.user for one in _FORMATS)
_WITHIN: Final = tuple(dict.fromkeys(pair for one in _FORMATS for pair in one.output_max_within))
_THINKING: Final = tuple(dict.fromkeys(pair for one in _FORMATS for pair in one.thinking))
_NESTED: Final = (*_WITHIN, *_THINKING)

_Body: Final = raw_struct(
    "Body",
    union([("model", "stream", "tools", "metadata"), _PROMPT, _OUTPUT_MAX, _USER, [outer for outer, _ in _NESTED]]),
)
_Limits: Final = raw_struct("Limits", dict.fromkeys(inner for _, inner in _NESTED))

_prompts: Final = values_of(_PROMPT)
_output_limits: Final = values_of(_OUTPUT_MAX)
_users: Final = values_of(_USER)

_BODY: Final = msgspec.json.Decoder(_Body)
_LIMITS: Final = msgspec.json.Decoder(_Limits)
_NAME: Final = msgspec.json.Decoder(str)
_COUNT: Final = msgspec.json.Decoder(int)
_WORDS: Final = msgspec.json.Decoder(dict[str, Any])


def recognising(method: str, path: str, headers: Mapping[str, str], body: Text) -> Steps[Recognised]:
    """Understand a request, in steps if its body is long.

    Args:
        path: Without query, and without a prefix of ours.
        headers: Lower-case names.
        body: As received; a compressed one is decoded here, as a copy.

    Raises:
        TooManyMembers: The body is not worth reading.
    """
    place = endpoint(path, headers)
    if method != "POST":
        return Recognised(apis=place.apis, generates=False, model=place.model)
    text = yield from decoding(body, headers.get("content-encoding", ""))
    fields: Any = yield from fields_of(_Body, _BODY, text)
    if fields is None:
        return Recognised(
            apis=place.apis, generates=bool(place.generates), model=place.model, stream=bool(place.streams)
        )
    generates = place.generates
    if generates is None:
        asks = any(len_of(part) for part in _prompts(fields))
        generates = asks and bool(len_of(fields.model))
    if fields.stream is ABSENT:
        stream = place.streams_by_default if place.streams is None else place.streams
    else:
        stream = _short(fields.stream) == b"true"
    metadata = _metadata(fields.metadata)
    tools = fields.tools
    pictures, letters = yield from _sizes(text)
    client, bytes_per_token = client_tokens(headers.get("user-agent", ""))
    return Recognised(
        apis=place.apis,
        generates=generates,
        model=place.model or _text(fields.model),
        stream=stream,
        tools=len_of(tools) > 2 and _short(tools) != b"null",
        images=pictures > 0,
        client=client,
        tokens_in=int(letters / bytes_per_token) + pictures * IMAGE_TOKENS,
        tokens_max_out=_output_max(fields),
        tokens_thinking=_within(fields, _THINKING),
        metadata=metadata,
        user=metadata.get("user_id") or next(filter(None, map(_text, _users(fields))), ""),
    )


def recognise(method: str, path: str, headers: Mapping[str, str], body: Text) -> Recognised:
    """Return the same at once."""
    return done(recognising(method, path, headers, body))


def _short(raw: msgspec.Raw) -> bytes:
    """Return a value of a few letters; empty: it is longer."""
    return bytes(raw) if len_of(raw) <= _SHORT_BYTES else b""


def _metadata(raw: msgspec.Raw) -> dict[str, str]:
    if not 0 < len_of(raw) <= METADATA_BYTES_MAX:
        return {}
    try:
        return {name: word for name, word in _WORDS.decode(raw).items() if isinstance(word, str)}
    except FAULTS:
        return {}


def _text(raw: msgspec.Raw) -> str:
    if not 0 < len_of(raw) <= NAME_BYTES_MAX:
        return ""
    try:
        return _NAME.decode(raw)
    except FAULTS:
        return ""


def _count(raw: msgspec.Raw) -> int:
    if raw is ABSENT:
        return 0
    try:
        value = _COUNT.decode(_short(raw))
    except FAULTS:
        return 0
    return value if 0 <= value < 2**53 else 0


def _output_max(fields: Any) -> int:
    for raw in _output_limits(fields):
        if limit := _count(raw):
            return limit
    return _within(fields, _WITHIN)


def _within(fields: Any, pairs: Iterable[tuple[str, str]]) -> int:
    for outer, inner in pairs:
        if limit := _count(getattr(_limits(getattr(fields, outer)), inner)):
            return limit
    return 0


def _limits(raw: msgspec.Raw) -> Any:
    if not 0 < len_of(raw) <= LIMITS_BYTES_MAX:
        return _Limits()
    try:
        return _LIMITS.decode(raw)
    except FAULTS:
        return _Limits()


def _sizes(text: Text) -> Steps[tuple[int, int]]:
    """Pictures, and bytes that are not base64: a picture of a megabyte is not 250,000 tokens."""
    # Most calls hold none; one look for what every such call must hold is a tenth of looking for them all.
    if not (yield from _is_marked(text)):
        return 0, len(text)
    pictures = 0
    for begin in range(0, len(text), STEP_BYTES):
        until = begin + STEP_BYTES
        pictures += sum(one.start() < until for one in _PICTURE.finditer(text, begin, until + _PICTURE_BYTES))
        if begin:
            yield
    return pictures, len(text) - (yield from _blobs(text))


def _is_marked(text: Text) -> Steps[bool]:
    for begin in range(0, len(text), STEP_BYTES):
        if any(text.find(mark, begin, begin + STEP_BYTES + len(mark) - 1) >= 0 for mark in MARKS):
            return True
        if begin:
            yield
    return False


def _blobs(text: Text) -> Steps[int]:
    """Bytes of base64, in strings of at least `_BLOB_BYTES_MIN` that hold nothing else."""
    total = at = 0
    while len(text) - at > _BLOB_BYTES_MIN:
        until = at + STEP_BYTES
        found = _BLOB.search(text, at, until)
        if found is None:
            # One may have begun near the end of what was looked at.
            at = until - _BLOB_HEAD_BYTES
            yield
            continue
        end = found.end()
        while end == until:
            yield
            until += STEP_BYTES
            more = _LETTERS.match(text, end, until)
            end = end if more is None else more.end()
        if text[end : end + 1] == b'"':
            total += end - found.start(1)
        at = end
    return total
