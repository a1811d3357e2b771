"""Ollama's own API; its server has Anthropic's and OpenAI's paths as well.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Api

from .dialect import Dialect, EndpointPattern

OLLAMA: Final = Dialect(
    api=Api.OLLAMA,
    base_url="http://127.0.0.1:11434",
    usual_path="/api/chat",
    endpoints=(
        EndpointPattern(r"/api/(?:chat|generate|embed|embeddings)", generates=True),
        EndpointPattern(r"/api/.*", generates=False),
    ),
    compatible_with={Api.ANTHROPIC: 2, Api.OPENAI: 3},
    streams_by_default=True,
)
