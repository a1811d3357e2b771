"""Any other server that has OpenAI's or Anthropic's paths; its answers are read as far as they are known forms."""

from __future__ import annotations

from typing import Final

from hivemind_trio.model import Api

from .dialect import Dialect
from .openai import CHAT_PATH

GENERIC: Final = Dialect(api=Api.GENERIC, usual_path=CHAT_PATH, compatible_with={Api.ANTHROPIC: 3, Api.OPENAI: 2})
