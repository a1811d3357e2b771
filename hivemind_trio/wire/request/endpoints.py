"""Dialect of a path, and whether the path makes the provider generate.

After the public API references of Anthropic, OpenAI, Azure OpenAI, Gemini and Ollama, and vLLM's list of supported
APIs, as they stood in November 2026.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Final, final
from urllib.parse import unquote

import attrs

from hivemind_trio.dialects import DIALECTS, PROBE_PATHS, V1_PATHS, has_version, speakers
from hivemind_trio.model import Api


@final
@attrs.frozen
class Endpoint:
    """Meaning of a path."""

    apis: tuple[Api, ...]
    generates: bool | None
    """True: it needs a slot when POSTed; False: it is cheap; None: unknown, so the body decides."""
    model: str = ""
    """Model that the path names; empty: none."""
    streams: bool | None = None
    """Streaming as the path says it; None: the body says it."""
    streams_by_default: bool = False
    """True if a request streams whose body says nothing of it."""
    output_max: tuple[str, ...] = ()
    """Member that limits the output where the body has none; empty: none is added."""


_PATTERNS: Final = tuple(
    (re.compile(one.pattern), speakers(dialect.api), one, dialect.streams_by_default)
    for dialect in DIALECTS.values()
    for one in dialect.endpoints
)

_TELLING: Final = tuple(
    {
        **{name: speakers(api) for api, dialect in DIALECTS.items() for name in dialect.client_headers},
        **{name: speakers(api) for api, dialect in DIALECTS.items() for name in dialect.telling_headers},
    }.items()
)
"""Headers by which a call on a shared path is of one API: first what only its clients send, then its credential."""


def endpoint(path: str, headers: Mapping[str, str]) -> Endpoint:
    """Return the meaning of a path.

    The headers of the SDKs decide a path that several providers share (`/v1/models`, `/v1/files`).

    Args:
        path: Without query, and without a prefix of ours.
        headers: Lower-case names.
    """
    bare = _bare(path)
    for pattern, apis, one, by_default in _PATTERNS:
        match = pattern.fullmatch(bare)
        if match is not None:
            model = match.groupdict().get("model") or ""
            return Endpoint(apis, one.generates, model, one.streams, by_default, one.output_max)
    return Endpoint(_by_headers(path, headers), False if bare in ("", "/v1/models", "/v1/files") else None)


def apis_of(path: str, headers: Mapping[str, str]) -> tuple[Api, ...]:
    """Return the dialects of a path, likeliest first."""
    return endpoint(path, headers).apis


def base_url_hint(path: str, bases: Iterable[str]) -> str:
    """Return what is wrong with a client's base URL where its path shows it; empty: nothing is.

    Args:
        bases: Where the providers are: behind one that has a version, a path without one is right, and one with
            another version may be. The same version twice is right nowhere.
    """
    bare = _bare(path)
    twice = _TWICE.match(bare)
    if not (twice and twice[1].endswith(twice[2])) and any(map(has_version, bases)):
        return ""
    if twice:
        return f"the client adds `{twice[2]}` to its base URL: take `{twice[1]}` off the base URL"
    if _BARE_CALL.fullmatch(bare):
        return "the client adds no `/v1`: end its base URL with `/v1`"
    return ""


METHODS_REJECTED: Final = frozenset({"CONNECT", "TRACE", "TRACK"})
"""Methods that are forwarded to no provider."""

_TWICE: Final = re.compile(r"((?:/v1(?:beta)?)+)(/v1(?:beta)?)(?=/|$)")
"""The end of a base URL, and the version that its client adds."""
_BARE_CALL: Final = re.compile(r"/(?:messages|chat/completions|completions|responses|embeddings)")
"""Calls of OpenAI's and Anthropic's clients without their version."""

_ADMIN: Final = re.compile(r"(?:(?:.*/v\d+)?/organizations?)(?:\W.*)?", re.IGNORECASE | re.DOTALL)
"""Anthropic's and OpenAI's administration: members, invitations, keys, usage and cost reports.

What stands before the version may be a gateway's; after the word, `;`, `#` and `.` end a segment for some servers.
"""
_PARAMETERS: Final = re.compile(r";[^/]*")
"""Parameters of a segment (RFC 3986, 3.3), which some servers take off."""
_ENCODINGS: Final = 4
"""Decodings of a path at most: gateways before a provider decode once more."""


def is_admin(path: str) -> bool:
    """Return whether a path administers the provider's account, however it is written."""
    for _ in range(_ENCODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    path = _PARAMETERS.sub("", path.replace("\\", "/"))
    return _ADMIN.fullmatch(_bare(path)) is not None


def is_root(path: str) -> bool:
    """Return whether a path is `/`, however it is written."""
    return _bare(path) == ""


def _bare(path: str) -> str:
    """Return a path as a provider may read it: no spelling may make a generation look like something cheap."""
    bare = unquote(path) if "%" in path else path
    if "/." in bare or "//" in bare:
        bare = "/" + posixpath.normpath(bare).lstrip("/")  # POSIX lets two slashes at the beginning stand
    return bare.rstrip("/")


def _by_headers(path: str, headers: Mapping[str, str]) -> tuple[Api, ...]:
    for name, apis in _TELLING:
        if name in headers:
            return apis
    if path.startswith("/v1/"):
        return V1_PATHS
    if path in ("", "/"):
        return PROBE_PATHS
    return ()
