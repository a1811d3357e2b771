"""The beginning of a prompt, as far as providers cache by it: tools, then what the system says."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from hivemind_trio.dialects import IN_ORDER
from hivemind_trio.wire.body.bodies import decoding
from hivemind_trio.wire.body.body_fields import ABSENT, fields_of, len_of, raw_struct, union, values_of
from hivemind_trio.wire.body.steps import STEP_BYTES, Steps, Text, done

HEAD: Final = 4_096
"""Bytes of the conversation that count where nothing stands before it: the first message is the system's then."""


_SYSTEM: Final = union(dialect.request.system for dialect in IN_ORDER)
_TALK: Final = union(dialect.request.prompt for dialect in IN_ORDER)

_Prompt: Final = raw_struct("Prompt", union([("model", "prompt_cache_key", "tools"), _SYSTEM, _TALK]))
_DECODER: Final = msgspec.json.Decoder(_Prompt)

_systems: Final = values_of(_SYSTEM)
_talks: Final = values_of(_TALK)


def prefixing(path: str, headers: Mapping[str, str], body: Text) -> Steps[str]:
    """Return the key of a prompt's beginning: equal ones are read once by a provider that caches. In steps.

    OpenAI's `prompt_cache_key` counts beside it: calls with other keys are sent to other caches.

    Args:
        path: It names the model where the body does not.
        headers: Lower-case names.
        body: As received.

    Returns:
        A digest; empty: there is no prompt, or none that can be read.

    Raises:
        TooManyMembers: The body is not worth reading.
    """
    text = yield from decoding(body, headers.get("content-encoding", ""))
    fields: Any = yield from fields_of(_Prompt, _DECODER, text)
    if fields is None:
        return ""
    said = memoryview(next(filter(len_of, _systems(fields)), ABSENT))
    if not said.nbytes:
        said = memoryview(next(filter(len_of, _talks(fields)), ABSENT))[:HEAD]
    if not said.nbytes and not len_of(fields.tools):
        return ""
    digest = blake2b(path.encode(errors="replace"), digest_size=12)
    for part in (memoryview(fields.model), memoryview(fields.prompt_cache_key), memoryview(fields.tools), said):
        digest.update(b"\0")
        for begin in range(0, part.nbytes, STEP_BYTES):
            digest.update(part[begin : begin + STEP_BYTES])
            if begin:
                yield
    return digest.hexdigest()


def prompt_prefix(path: str, headers: Mapping[str, str], body: Text) -> str:
    """Return the same at once."""
    return done(prefixing(path, headers, body))
