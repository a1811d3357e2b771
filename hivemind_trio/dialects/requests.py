"""Formats of requests: the members of a body that say what a call asks for.

`model`, `stream`, `tools` and `metadata` are the same in all of them. The members of all dialects are looked for
together, for a server may have the paths of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

CHAT_LIMIT: Final = {"max_completion_tokens": "max_tokens"}
"""Servers of OpenAI's chat completions that know only the older name."""


@final
@attrs.frozen(kw_only=True)
class RequestFormat:
    """Members of a body at its top level."""

    prompt: tuple[str, ...] = ()
    """Members that hold the conversation. A call with one of them and a model generates."""
    system: tuple[str, ...] = ()
    """Members that hold the instructions before the conversation, by which providers cache."""
    output_max: tuple[str, ...] = ()
    """Members that limit the tokens of the output, the usual one first."""
    output_max_within: tuple[tuple[str, str], ...] = ()
    """The same within a member that is an object."""
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    """Members that its server knows by another name than the dialect that has the path."""
    thinking: tuple[tuple[str, str], ...] = ()
    """Budgets of thinking that the limit of the output must exceed, within a member that is an object."""
    user: tuple[str, ...] = ()
    """Members that say whom the call is for."""
    pictures: tuple[bytes, ...] = ()
    """Expressions; one matches a few letters of every part that is a picture, and none the definition of a tool."""
