"""Prompts of bodies, to be counted: by a tokenizer here, or by the provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, final

import attrs
import msgspec

from hivemind_trio.dialects.counting import CountFormat
from hivemind_trio.wire.body.bodies import decoding
from hivemind_trio.wire.body.steps import Steps, Text

COUNTED_MAX: Final = 400_000
"""Largest body that is counted: a tokenizer takes 60 ms for it. What is larger has been taught by smaller ones."""

PIECE: Final = 16_384
"""Characters that are counted in one step, about 2 ms."""

PROMPT: Final = ("system", "instructions", "tools", "messages", "input")
"""Members of a body that are its prompt."""

MESSAGE_TOKENS: Final = 4
"""Tokens of a message beside its text."""

_NO_TEXT: Final = {
    *("id", "type", "role", "encrypted_content", "cache_control", "prompt_cache_key"),
    *("input_audio", "file_data"),  # base64
}

_PICTURE: Final = ("image_generation_call", "result")
"""Type of an item and its member that is base64; members of this name are text elsewhere."""

_ODD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@final
@attrs.frozen
class CountRequest:
    """Request to a provider's endpoint for counts."""

    path: str
    body: bytes = attrs.field(repr=False)


def count_request(form: CountFormat, path: str, model: str, encoding: str, body: Text) -> Steps[CountRequest | None]:
    """Return how a provider is asked for the tokens of a body, in steps; None: it cannot be.

    Args:
        path: Of the generation, without query.
        encoding: Of the body.
    """
    target = form.target(path)
    text = (yield from decoding(body, encoding)) if target is not None else b""
    if target is None or not text:
        return None
    try:
        return CountRequest(target, form.body(_MEMBERS.decode(text), model))
    except _ODD:
        return None


def counted_answer(form: CountFormat, body: bytes) -> int | None:
    """Return the count of a provider's answer; None: it says none."""
    try:
        found: Any = msgspec.json.decode(body)
    except _ODD:
        return None
    count = found.get(form.answer) if isinstance(found, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


def counting(encoding: str, body: Text, count: Callable[[str], int]) -> Steps[int | None]:
    """Return the tokens of a body's prompt, in steps; None: it is too large, or cannot be read.

    Texts of instructions and messages are counted as the model sees them, tools as compact JSON; pictures, sounds
    and files are not.

    Args:
        encoding: Of the body.
        count: Counts the tokens of a text.
    """
    text = yield from decoding(body, encoding)
    if not text or len(text) > COUNTED_MAX:
        return None
    try:
        asked: Any = msgspec.json.decode(text)
    except _ODD:
        return None
    if not isinstance(asked, dict):
        return None
    talk = asked.get("messages") or asked.get("input")
    total = MESSAGE_TOKENS * len(talk) if isinstance(talk, list) else 0
    size = 0
    try:
        for piece in _prompt_pieces({name: asked[name] for name in PROMPT if name in asked}):
            total += count(piece)
            size += len(piece)
            if size >= PIECE:
                size = 0
                yield
    except RecursionError:
        return None
    return total


def _prompt_pieces(value: Any) -> Iterator[str]:
    for text in _texts(value):
        for begin in range(0, len(text), PIECE):
            yield text[begin : begin + PIECE]


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a body that the model sees."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name == "tools":
                yield _compact(one)
            elif name not in _NO_TEXT and not name.endswith("metadata") and (value.get("type"), name) != _PICTURE:
                yield from _texts(one)


def _compact(value: Any) -> str:
    """Return definitions of tools as compact JSON, their texts as they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(_compact, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{_compact(one)}' for name, one in value.items())}}}"
    return msgspec.json.encode(value).decode()
