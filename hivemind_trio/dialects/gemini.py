"""Google's Gemini API, and Vertex AI, which has the project, the place and the publisher before the model.

After their public API references, as they stood in November 2026.
"""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Api

from .dialect import Dialect, EndpointPattern

_MODEL: Final = r"(?:/v1(?:beta|alpha)?\d*)?/(?:[^:]+/)?(?:m|tunedM)odels/(?P<model>[^/:]+)"

GEMINI: Final = Dialect(
    api=Api.GEMINI,
    base_url="https://generativelanguage.googleapis.com",
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    usual_path="/v1beta/models",
    usual_model="gemini-2.5-pro",
    endpoints=(
        EndpointPattern(
            _MODEL + r":(?:generateContent|embedContent|batchEmbedContents|predict|rawPredict)",
            generates=True,
            streams=False,
        ),
        EndpointPattern(_MODEL + r":(?:streamGenerateContent|streamRawPredict)", generates=True, streams=True),
        EndpointPattern(r"/v1(?:beta|alpha)?\d*/[^:]+:\w+", generates=False),
        EndpointPattern(r"/v1(?:beta|alpha)\d*/.*", generates=False),
    ),
    client_headers={"x-goog-api-client": "genai", "x-goog-api-key": "x"},  # the key is in `key=` as well
    credential_header=b"x-goog-api-key",
    credential_prefix=b"",
)
