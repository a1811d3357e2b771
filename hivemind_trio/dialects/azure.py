"""Azure OpenAI: OpenAI's calls below `/openai/`, with a credential header and rate limits of its own.

After Microsoft's public reference, as it stood in November 2026.
"""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Api

from .dialect import Dialect, EndpointPattern
from .openai import error, error_event, keep_alive

AZURE: Final = Dialect(
    api=Api.AZURE,
    usual_path="/openai/v1/chat/completions",
    usual_model="gpt-4.1",
    endpoints=(
        EndpointPattern(
            r"/openai/deployments/(?P<model>[^/]+)/(?:chat/completions|completions|responses|embeddings)",
            generates=True,
        ),
        EndpointPattern(r"/openai/deployments/(?P<model>[^/]+)/(?:images|audio)/.*", generates=True),
        EndpointPattern(r"/openai/(?:v1/)?(?:chat/completions|completions|responses|embeddings)", generates=True),
        EndpointPattern(r"/openai/.*", generates=False),
    ),
    credential_header=b"api-key",
    credential_prefix=b"",
    error=error,
    error_event=error_event,
    keep_alive=keep_alive,
)
