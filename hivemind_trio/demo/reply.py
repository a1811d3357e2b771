"""Replies that a test can script, and requests that a provider remembers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import attrs
import trio


@final
@attrs.frozen(kw_only=True)
class ScriptedReply:
    """Differences of one answer from the ordinary one. With no argument it does not."""

    status: int | None = None
    """Answer with this and an error of the API's shape, or with `body`, instead of generating. It takes no slot."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    """Sent beside the ordinary ones, in this order, as they are."""
    body: bytes | None = None
    """Sent instead of the ordinary body, with a `content-length`."""
    content_type: bytes = b"application/json"
    """Content type of such a body."""
    hold: trio.Event | None = None
    """Nothing is sent until it is set. The request holds its slot meanwhile."""
    hold_after: tuple[int, trio.Event] | None = None
    """After that many streamed events nothing more is sent until the event is set."""
    die_after: int | None = None
    """Close the connection after that many streamed events (of a plain answer: after half its body)."""
    reset: bool = False
    """Close with RST instead of FIN where `die_after` says; without it, before a single byte is sent."""


@final
@attrs.frozen(kw_only=True)
class Seen:
    """A request as it arrived."""

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    """Names as they were spelled, in order."""
    body: bytes
