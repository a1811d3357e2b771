"""Formats of requests: the members of a body that say what a call asks for.

`model`, `stream`, `tools` and `metadata` are the same in all of them. The members of all dialects are looked for
together, for a server may have the paths of several.
"""

from __future__ import annotations

from typing import final

import attrs


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
    user: tuple[str, ...] = ()
    """Members that say whom the call is for."""
    pictures: tuple[bytes, ...] = ()
    """One of these is in every part that is a picture."""
