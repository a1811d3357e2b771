"""OpenAI's API: Chat Completions, Completions, Responses and Embeddings, and Codex with a ChatGPT plan.

After its public API reference, as it stood in November 2026.
"""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Api

from .dialect import Dialect, EndpointPattern

CHAT_PATH: Final = "/v1/chat/completions"

OPENAI: Final = Dialect(
    api=Api.OPENAI,
    base_url="https://api.openai.com",
    key_variables=("OPENAI_API_KEY",),
    usual_path=CHAT_PATH,
    usual_model="gpt-4.1",
    endpoints=(
        EndpointPattern(
            r"/v1/(?:chat/completions|completions|responses|responses/compact|embeddings|rerank|score)", generates=True
        ),
        EndpointPattern(r"/v1/(?:images/(?:generations|edits|variations)|audio/\w+)", generates=True),
        EndpointPattern(r"/backend-api/codex/responses(?:/compact)?", generates=True),
        EndpointPattern(r"/v1/(?:responses|chat/completions)/.*", generates=False),
        EndpointPattern(
            r"/v1/(?:moderations|batches|uploads|vector_stores|assistants|threads|fine_tuning)(?:/.*)?",
            generates=False,
        ),
        EndpointPattern(r"/v1/conversations(?:/.*)?", generates=False),
    ),
)
