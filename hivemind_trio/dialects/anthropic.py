"""Anthropic's API: Messages, and the Text Completions before them.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Api

from .dialect import Dialect, EndpointPattern

ANTHROPIC: Final = Dialect(
    api=Api.ANTHROPIC,
    base_url="https://api.anthropic.com",
    key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    usual_path="/v1/messages",
    usual_model="claude-sonnet-4-5",
    endpoints=(
        EndpointPattern(r"/v1/messages", generates=True),
        EndpointPattern(r"/v1/messages/.*", generates=False),
        EndpointPattern(r"/v1/complete", generates=True),
        EndpointPattern(r"/v1/(?:skills|organizations)(?:/.*)?", generates=False),
    ),
    client_headers={"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-claude-code-session-id": "x"},
    credential_header=b"x-api-key",
    credential_prefix=b"",
)
