"""Another model in a request: the one thing in it that a policy may change."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote_from_bytes

import msgspec

from ._bodies import decoded
from ._paths import endpoint

_IN_PATH: Final = re.compile(rb"((?:/m|/tunedM)odels/|/deployments/)[^/:]+")
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_model(path: bytes, body: bytes, encoding: str, model: str) -> tuple[bytes, bytes] | None:
    """Path and body of a request that asks for `model`; None: it says nowhere which model it asks for.

    Every other field of the body stays as it is, to the byte; a compressed body comes back without its coding.

    Args:
        path: As it came, without the query.
        encoding: The body's `content-encoding`; empty: none.
    """
    named = bool(endpoint(path.decode("latin-1"), {}).model)
    if named:
        path = _IN_PATH.sub(lambda match: match[1] + quote_from_bytes(model.encode(), safe="").encode(), path, count=1)
    text = decoded(body, encoding)
    try:
        fields = _FIELDS.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = {}
    if "model" in fields:
        fields["model"] = msgspec.Raw(msgspec.json.encode(model))
        return path, msgspec.json.encode(fields)
    return (path, text) if named and text else None
