"""A body's copy without its content-encoding, as far as we can read it."""

from __future__ import annotations

import zlib
from typing import Final

DECODED_MAX: Final = 64 << 20
"""Of a compressed body's copy; beyond it nothing is known of the call, and it passes as it is."""


def decoded(body: bytes, encoding: str) -> bytes:
    """The text of a body; empty where it cannot be read: another coding, damage, or a bomb."""
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip":
            window = 16 + zlib.MAX_WBITS
        case "deflate":
            window = zlib.MAX_WBITS
        case _:
            return b""
    try:
        inflate = zlib.decompressobj(window)
        text = inflate.decompress(body, DECODED_MAX)
    except zlib.error:
        return b""
    return b"" if inflate.unconsumed_tail else text
