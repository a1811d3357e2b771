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

from hivemind_trio.model import ANTHROPIC_PATHS as ANTHROPIC
from hivemind_trio.model import OPENAI_PATHS as OPENAI
from hivemind_trio.model import PROBE_PATHS, V1_PATHS, Api

AZURE: Final = (Api.AZURE,)
GEMINI: Final = (Api.GEMINI,)
OLLAMA: Final = (Api.OLLAMA,)


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


_GEMINI: Final = r"(?:/v1(?:beta|alpha)?\d*)?/(?:[^:]+/)?(?:m|tunedM)odels/(?P<model>[^/:]+)"
"""Vertex has the project, the place and the publisher before the model."""

_TABLE: Final = (
    (r"/v1/messages", ANTHROPIC, True),
    (r"/v1/messages/.*", ANTHROPIC, False),
    (r"/v1/complete", ANTHROPIC, True),
    (r"/v1/(?:skills|organizations)(?:/.*)?", ANTHROPIC, False),
    (r"/openai/deployments/(?P<model>[^/]+)/(?:chat/completions|completions|responses|embeddings)", AZURE, True),
    (r"/openai/deployments/(?P<model>[^/]+)/(?:images|audio)/.*", AZURE, True),
    (r"/openai/(?:v1/)?(?:chat/completions|completions|responses|embeddings)", AZURE, True),
    (r"/openai/.*", AZURE, False),
    (_GEMINI + r":(?:generateContent|streamGenerateContent|embedContent|batchEmbedContents)", GEMINI, True),
    (_GEMINI + r":(?:predict|rawPredict|streamRawPredict)", GEMINI, True),
    (r"/v1(?:beta|alpha)?\d*/[^:]+:\w+", GEMINI, False),
    (r"/v1(?:beta|alpha)\d*/.*", GEMINI, False),
    (r"/api/(?:chat|generate|embed|embeddings)", OLLAMA, True),
    (r"/api/.*", OLLAMA, False),
    (r"/v1/(?:chat/completions|completions|responses|responses/compact|embeddings|rerank|score)", OPENAI, True),
    (r"/v1/(?:images/(?:generations|edits|variations)|audio/\w+)", OPENAI, True),
    (r"/backend-api/codex/responses(?:/compact)?", OPENAI, True),
    (r"/v1/(?:responses|chat/completions)/.*", OPENAI, False),
    (r"/v1/(?:moderations|batches|uploads|vector_stores|assistants|threads|fine_tuning)(?:/.*)?", OPENAI, False),
    (r"/v1/conversations(?:/.*)?", OPENAI, False),
)

_PATHS: Final = tuple((re.compile(pattern), apis, generates) for pattern, apis, generates in _TABLE)


def endpoint(path: str, headers: Mapping[str, str]) -> Endpoint:
    """Return the meaning of a path; of one that several providers share (`/v1/models`, `/v1/files`) by the headers of
    their SDKs.

    Args:
        path: Without query, and without a prefix of ours.
        headers: Lower-case names.
    """
    bare = _bare(path)
    for pattern, apis, generates in _PATHS:
        match = pattern.fullmatch(bare)
        if match is not None:
            model = match.groupdict().get("model") or ""
            streams = ":stream" in bare if apis is GEMINI and generates else None
            return Endpoint(apis, generates, model, streams)
    return Endpoint(_by_headers(path, headers), False if bare in ("", "/v1/models", "/v1/files") else None)


def apis_of(path: str, headers: Mapping[str, str]) -> tuple[Api, ...]:
    """Return the dialects of a path, likeliest first."""
    return endpoint(path, headers).apis


def base_url_hint(path: str, bases: Iterable[str]) -> str:
    """Return what is wrong with a client's base URL where its path shows it; empty: nothing is.

    Args:
        bases: Where the providers are: behind one that ends with a version, a path without one is right.
    """
    bare = _bare(path)
    if any(_VERSIONED.search(base) for base in bases):
        return ""
    if _TWICE.match(bare):
        return "the client adds `/v1` to its base URL: take `/v1` off the base URL"
    if _BARE_CALL.fullmatch(bare):
        return "the client adds no `/v1`: end its base URL with `/v1`"
    return ""


_VERSIONED: Final = re.compile(r"/v\d+$")
_TWICE: Final = re.compile(r"(?:/v1){2,}(?:/|$)")
_BARE_CALL: Final = re.compile(r"/(?:messages|chat/completions|completions|responses|embeddings)")
"""Calls of OpenAI's and Anthropic's clients without their version."""

_ADMIN: Final = re.compile(r"(?:/v\d+)*/organizations?(?:/.*)?", re.IGNORECASE)
"""Anthropic's and OpenAI's administration: members, invitations, keys, usage and cost reports."""


def is_admin(path: str) -> bool:
    """Return whether a path administers the provider's account, however it is written."""
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
    if "anthropic-version" in headers or "anthropic-beta" in headers or "x-claude-code-session-id" in headers:
        return ANTHROPIC
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers:
        return GEMINI
    if "api-key" in headers:
        return AZURE
    if "x-api-key" in headers:
        return ANTHROPIC
    if path.startswith("/v1/"):
        return V1_PATHS
    if path in ("", "/"):
        return PROBE_PATHS
    return ()
