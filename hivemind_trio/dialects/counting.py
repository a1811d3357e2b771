"""Counts of a prompt's tokens before it is sent: an endpoint of the provider, or the tokenizer of its models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, final

import attrs
import msgspec

Members = Mapping[str, msgspec.Raw]
"""Members of a body, as they were written."""


@final
@attrs.frozen(kw_only=True)
class CountFormat:
    """A free endpoint of a provider that counts the prompt of a body."""

    target: Callable[[str], str | None]
    """Path of a generation -> path of its count; None: it has none."""
    body: Callable[[Members, str], bytes]
    """Members of a generation's body, and the model that is sent -> body of its count."""
    answer: str
    """Member of the answer that is the count."""


_COUNTED: Final = ("model", "messages", "system", "tools", "tool_choice", "thinking")
"""Members that Anthropic counts; it rejects others."""


def _anthropic_body(members: Members, model: str) -> bytes:
    named = msgspec.Raw(msgspec.json.encode(model))
    return _object({**{name: members[name] for name in _COUNTED if name in members}, "model": named})


def _gemini_target(path: str) -> str | None:
    target, found = re.subn(r":(?:streamGenerateContent|generateContent)$", ":countTokens", path)
    return target if found else None


def _gemini_body(members: Members, model: str) -> bytes:
    named = msgspec.Raw(msgspec.json.encode(f"models/{model}"))
    return _object({"generateContentRequest": msgspec.Raw(_object({**members, "model": named}))})


def _object(members: Members) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (msgspec.json.encode(name), bytes(raw)) for name, raw in members.items())


ANTHROPIC_COUNTS: Final = CountFormat(
    target=lambda path: f"{path}/count_tokens" if path.endswith("/messages") else None,
    body=_anthropic_body,
    answer="input_tokens",
)
GEMINI_COUNTS: Final = CountFormat(target=_gemini_target, body=_gemini_body, answer="totalTokens")

_ENCODINGS: Final = (
    (re.compile(r"(?:gpt-(?:4o|4\.\d|[5-9])|chatgpt|o[1-9]|codex)(?:[-.].*)?"), "o200k_base"),
    (re.compile(r"gpt-(?:4|3\.5)(?:-.*)?"), "cl100k_base"),
)


def openai_encoding(model: str) -> str | None:
    """Return the name of the encoding of an OpenAI model; None: it is none, or not known."""
    name = model.rpartition("/")[2]
    return next((encoding for shape, encoding in _ENCODINGS if shape.fullmatch(name)), None)
