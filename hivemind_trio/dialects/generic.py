"""Any other server that has OpenAI's or Anthropic's paths; its answers are read as far as they are known forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hivemind_trio.model import Api

from .dialect import Dialect, KeepAlive
from .openai import CHAT_PATH, SIMULATED, error, error_event


def _keep_alive(path: str, query: str, model: str, headers: Mapping[str, str]) -> KeepAlive | None:
    """Return None: how its client reads a stream is not known."""
    return None


GENERIC: Final = Dialect(
    api=Api.GENERIC,
    version_in_base=True,
    usual_path=CHAT_PATH,
    compatible_with={Api.ANTHROPIC: 3, Api.OPENAI: 2},
    error=error,
    error_event=error_event,
    keep_alive=_keep_alive,
    simulated=SIMULATED,
)
