"""Variables of a job that an agent submits: the key of its calls, and no secret of the proxy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from hivemind_trio.model import SecretRef, SecretSource

TOKEN_VARIABLES: Final = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY")
"""Variables that agents take the key of their calls from."""
LOGIN_VARIABLES: Final = ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "GOOGLE_API_KEY")
"""Variables that would go before those."""
OPERATOR_VARIABLES: Final = ("HIVEMIND_ADMIN_TOKEN",)


def identity(refs: Iterable[SecretRef], secrets: Mapping[SecretRef, str]) -> dict[str, str]:
    """Return the variables by which calls are those of an agent with one of these tokens."""
    token = next((secrets[ref] for ref in refs if secrets.get(ref)), "")
    return dict.fromkeys(TOKEN_VARIABLES, token)


def without_secrets(environment: Mapping[str, str], secrets: Iterable[SecretRef]) -> dict[str, str]:
    """Return the variables of the proxy that a job may see: what it runs is an agent's to say."""
    hidden = {ref.name for ref in secrets if ref.source is SecretSource.ENV}
    hidden |= {*TOKEN_VARIABLES, *LOGIN_VARIABLES, *OPERATOR_VARIABLES}
    return {name: value for name, value in environment.items() if name not in hidden}
