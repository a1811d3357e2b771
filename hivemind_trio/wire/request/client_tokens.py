"""Bytes of a body for a token before usage has taught better, by the client that sends it.

Tools and instructions are most of an agent's first call, and have fewer tokens than talk and code. Measured on first
bodies of the clients themselves (`bench/first_calls.py`): Codex 0.80 to 0.169 has 4.8 to 5.3 bytes for a token of
o200k. Claude Code has 4.6 to 4.9 for these; its models have a tokenizer of their own, which is not public and has more
tokens, so its bodies count as others do.
"""

from __future__ import annotations

import functools
import re
from typing import Final

BYTES_PER_TOKEN: Final = 4.0
"""Size for an unknown client: English and code have 3.5 to 4.5 in known tokenizers."""

CLIENTS: Final = (
    ("codex", re.compile(r"^codex[_/]", re.I), 5.0),
    ("claude-code", re.compile(r"^claude-cli/"), BYTES_PER_TOKEN),
)
"""Name, user-agent, and bytes for a token."""


@functools.lru_cache(maxsize=256)
def client_tokens(user_agent: str) -> tuple[str, float]:
    """Return the name of a client, empty if it is none that is known here, and its bytes for a token."""
    return next(((name, size) for name, pattern, size in CLIENTS if pattern.search(user_agent)), ("", BYTES_PER_TOKEN))
