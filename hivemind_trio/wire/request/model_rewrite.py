"""Another model in a request."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote_from_bytes

import msgspec

from hivemind_trio.dialects import IN_ORDER
from hivemind_trio.wire.body.bodies import decoding
from hivemind_trio.wire.body.json_members import members
from hivemind_trio.wire.body.steps import STEP_BYTES, Steps, Text, done

from .endpoints import endpoint

_IN_PATH: Final = re.compile(
    rb"(/(?:%s)/)[^/:]+" % b"|".join(name.encode() for dialect in IN_ORDER for name in dialect.model_segments)
)
_WANTED: Final = frozenset({"model"})


def remodelling(path: bytes, body: Text, encoding: str, model: str) -> Steps[tuple[bytes, Text] | None]:
    """Path and body of a request that asks for `model`; None: it says nowhere which model it asks for. In steps.

    Every other byte of the body stays as it is; a compressed body comes back without its coding.

    Args:
        path: As it came, without the query.
        encoding: The body's `content-encoding`; empty: none.

    Raises:
        TooManyMembers: The body is not worth reading.
    """
    named = bool(endpoint(path.decode("latin-1"), {}).model)
    path = path_with_model(path, model)
    text = yield from decoding(body, encoding)
    spans = yield from members(text, _WANTED)
    if spans:
        # Whoever says it twice hopes that the provider reads the other one.
        return path, (yield from _spliced(text, spans["model"], msgspec.json.encode(model)))
    return (path, text) if named and text else None


def path_with_model(path: bytes, model: str) -> bytes:
    """Return the path with `model` in place of the model that it names; as it is if it names none."""
    if not endpoint(path.decode("latin-1"), {}).model:
        return path
    return _IN_PATH.sub(lambda match: match[1] + quote_from_bytes(model.encode(), safe="").encode(), path, count=1)


def with_model(path: bytes, body: Text, encoding: str, model: str) -> tuple[bytes, Text] | None:
    """Return the same at once."""
    return done(remodelling(path, body, encoding, model))


def _spliced(text: Text, spans: list[tuple[int, int]], value: bytes) -> Steps[Text]:
    """Return the text with this value in place of others."""
    changed, at = bytearray(), 0
    for begin, end in [*spans, (len(text), len(text))]:
        for piece in range(at, begin, STEP_BYTES):
            changed += text[piece : min(begin, piece + STEP_BYTES)]
            if piece > at:
                yield
        if end > begin:
            changed += value
        at = end
    return bytes(changed) if len(changed) <= STEP_BYTES else changed
