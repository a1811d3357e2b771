"""All dialects, and the sets of them that share paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api

from .anthropic import ANTHROPIC
from .azure import AZURE
from .dialect import Dialect
from .gemini import GEMINI
from .generic import GENERIC
from .mistral import MISTRAL
from .ollama import OLLAMA
from .openai import OPENAI
from .vllm import VLLM

DIALECTS: Final[Mapping[Api, Dialect]] = {
    dialect.api: dialect for dialect in (AZURE, ANTHROPIC, GEMINI, MISTRAL, OLLAMA, OPENAI, VLLM, GENERIC)
}
"""In the order in which paths and headers are tried: Gemini's calls may stand below `/openai/` and `/v1/`."""

IN_ORDER: Final = tuple(DIALECTS[api] for api in Api)
"""In the order of `Api`, in which formats are tried."""

KNOWN_BASES: Final[Mapping[Api, str]] = {api: base for api in Api if (base := DIALECTS[api].base_url) is not None}
"""Default base URLs."""

KNOWN_NAMES: Final[Mapping[str, Api]] = {api.value: api for api in KNOWN_BASES}
"""A provider of one of these names need not say `api`."""


ERROR_STATUSES: Final[Mapping[str, int]] = {
    word: status for dialect in IN_ORDER for word, status in dialect.limits.statuses.items()
}
"""The word for an error, in lower case -> the status of a plain answer that says it."""

BILLING_CODES: Final = frozenset(code for dialect in IN_ORDER for code in dialect.limits.billing_codes)
"""Error codes of money or plan used up: waiting for minutes does not help."""


def dialect_of(api: Api | None) -> Dialect:
    """Return the record of a dialect; None is a call of no known one."""
    return GENERIC if api is None else DIALECTS[api]


def speakers(api: Api) -> tuple[Api, ...]:
    """Return the dialects of the servers that have the endpoints of this one, likeliest first."""
    others = [dialect for dialect in DIALECTS.values() if api in dialect.compatible_with]
    others.sort(key=lambda dialect: dialect.compatible_with[api])
    return api, *(dialect.api for dialect in others), *DIALECTS[api].declared_as


V1_PATHS: Final = (*speakers(Api.OPENAI), Api.ANTHROPIC)
"""Dialects of paths below `/v1/` that no API claims."""

PROBE_PATHS: Final = tuple(dict.fromkeys((Api.ANTHROPIC, *speakers(Api.OPENAI), *Api)))
"""Dialects of a connectivity probe: any provider may answer it."""

_SHARED: Final = {several: DIALECTS[api] for api in Api if len(several := speakers(api)) > 1}

SHARED_PATHS: Final = (*_SHARED, V1_PATHS, PROBE_PATHS)
"""All sets of several dialects that one call may have; other calls are of one dialect, or of none that is known."""

KNOWN_PATHS: Final = (*(dialect.shared_path or dialect.usual_path for dialect in _SHARED.values()), "/v1/other", "/")
"""A path of each of these sets."""
