"""A body's copy without its content-encoding, as far as we can read it."""

from __future__ import annotations

from typing import Final

from .content_codings import Undecodable, unfolding
from .steps import Steps, Text, done

DECODED_MAX: Final = 64 << 20
"""Largest decoded copy of a compressed body; a larger one is forwarded unread, and nothing is known of the call."""


def decoding(body: Text, encoding: str, most: int = DECODED_MAX) -> Steps[Text]:
    """Return the text of a body, in steps; empty where it cannot be read: another coding, damage, or a bomb.

    Args:
        most: Bytes that it may unfold to. Little more is ever held, whatever it would unfold to.
    """
    try:
        return (yield from unfolding(body, encoding, most))
    except Undecodable:
        return b""


def decoded(body: Text, encoding: str, most: int = DECODED_MAX) -> Text:
    """Return the same at once."""
    return done(decoding(body, encoding, most))
