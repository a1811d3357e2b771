"""vLLM's server, which has OpenAI's and Anthropic's paths.

After its list of supported APIs, as it stood in November 2026.
"""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Api

from .dialect import Dialect
from .openai import CHAT_PATH, SIMULATED, error, error_event, keep_alive

VLLM: Final = Dialect(
    api=Api.VLLM,
    version_in_base=True,
    usual_path=CHAT_PATH,
    compatible_with={Api.ANTHROPIC: 1, Api.OPENAI: 1},
    error=error,
    error_event=error_event,
    keep_alive=keep_alive,
    simulated=SIMULATED,
)
