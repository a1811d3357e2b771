"""Content-codings, read piece by piece: gzip and deflate always, br and zstd where their libraries are installed.

`pip install hivemind-trio[compression]` brings those. A coding that cannot be read is passed on all the same; what the
call has taken stays an estimate then.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from .steps import STEP_BYTES, Steps, Text

PIECE_MAX: Final = 4 << 20
"""Largest output of one piece: more is a decompression bomb."""

ZSTD_SLICE: Final = 512
"""Its library has no bound of its own; four bytes can unfold to 128 KiB, so a slice to 16 MiB at most."""

UNFOLDED_STEP: Final = 4 * STEP_BYTES
"""Largest output of one step of a whole body."""

Inflate = Callable[[bytes], bytes]
"""Unfolds the next piece.

Raises:
    Undecodable: It is damaged, or unfolds to more than `PIECE_MAX`.
"""


class Undecodable(ValueError):  # noqa: N818 - said of a body, not of us
    """The rest of this body cannot be read."""


def inflater(encoding: str) -> Inflate | None:
    """Return the decoder of this content-coding; None: there is none."""
    match encoding.strip().lower():
        case "" | "identity":
            return bytes
        case "gzip" | "x-gzip":
            return _zlib(16 + zlib.MAX_WBITS)
        case "deflate":
            return _zlib(zlib.MAX_WBITS)
        case "br":
            return _brotli()
        case "zstd":
            return _zstd()
        case _:
            return None


def unfolding(body: Text, encoding: str, most: int) -> Steps[Text]:
    """Unfold a whole body of this content-coding, in steps. What breaks off is read as far as it goes.

    Args:
        most: Bytes that it may unfold to. Little more is ever held, whatever it would unfold to.

    Raises:
        Undecodable: Nothing here reads this coding, it is damaged, or it unfolds to more.
    """
    match encoding.strip().lower():
        case "" | "identity":
            if len(body) > most:
                raise Undecodable("it is too much")
            return body
        case "gzip" | "x-gzip":
            pieces = _zlib_pieces(body, 16 + zlib.MAX_WBITS)
        case "deflate":
            pieces = _zlib_pieces(body, zlib.MAX_WBITS)
        case "br" if (brotli := _library("brotli")) is not None:
            pieces = _brotli_pieces(brotli, body)
        case "zstd" if (zstandard := _library("zstandard")) is not None:
            pieces = _zstd_pieces(zstandard, body)
        case _:
            raise Undecodable("nothing here reads this coding")
    text = bytearray()
    for piece in pieces:
        text += piece
        if len(text) > most:
            raise Undecodable("it unfolds to too much")
        yield
    return text


def _zlib_pieces(body: Text, window: int) -> Iterator[bytes]:
    stream = zlib.decompressobj(window)
    view = memoryview(body)
    try:
        for begin in range(0, len(view), STEP_BYTES):
            rest: bytes | memoryview = view[begin : begin + STEP_BYTES]
            while rest and not stream.eof:
                yield stream.decompress(rest, UNFOLDED_STEP)
                rest = stream.unconsumed_tail
        yield stream.flush(UNFOLDED_STEP)
    except zlib.error as error:
        raise Undecodable(str(error)) from None


def _brotli_pieces(brotli: Any, body: Text) -> Iterator[bytes]:
    stream = brotli.Decompressor()
    try:
        for begin in range(0, len(body), STEP_BYTES):
            rest = bytes(body[begin : begin + STEP_BYTES])
            while text := stream.process(rest, output_buffer_limit=UNFOLDED_STEP):
                yield text
                rest = b""  # it has it all, and hands it out by and by
    except brotli.error as error:
        raise Undecodable(str(error)) from None


def _zstd_pieces(zstandard: Any, body: Text) -> Iterator[bytes]:
    reader = zstandard.ZstdDecompressor(max_window_size=8 << 20).stream_reader(body, read_across_frames=True)
    try:
        while text := reader.read(UNFOLDED_STEP):
            yield text
    except zstandard.ZstdError as error:
        raise Undecodable(str(error)) from None


def _zlib(window: int) -> Inflate:
    stream = zlib.decompressobj(window)

    def inflate(piece: bytes) -> bytes:
        try:
            text = stream.decompress(piece, PIECE_MAX)
        except zlib.error as error:
            raise Undecodable(str(error)) from None
        if stream.unconsumed_tail:
            raise Undecodable("a piece unfolds to too much")
        return text

    return inflate


def _brotli() -> Inflate | None:
    brotli = _library("brotli")
    if brotli is None:
        return None
    stream = brotli.Decompressor()

    def inflate(piece: bytes) -> bytes:
        try:
            text: bytes = stream.process(piece, output_buffer_limit=PIECE_MAX)
        except brotli.error as error:
            raise Undecodable(str(error)) from None
        if not stream.can_accept_more_data():
            raise Undecodable("a piece unfolds to too much")
        return text

    return inflate


def _zstd() -> Inflate | None:
    zstandard = _library("zstandard")
    if zstandard is None:
        return None
    stream = zstandard.ZstdDecompressor(max_window_size=8 << 20).decompressobj()

    def inflate(piece: bytes) -> bytes:
        texts: list[bytes] = []
        size = 0
        for begin in range(0, len(piece), ZSTD_SLICE):
            try:
                text: bytes = stream.decompress(piece[begin : begin + ZSTD_SLICE])
            except zstandard.ZstdError as error:
                raise Undecodable(str(error)) from None
            texts.append(text)
            size += len(text)
            if size > PIECE_MAX:
                raise Undecodable("a piece unfolds to too much")
        return b"".join(texts)

    return inflate


def _library(name: str) -> Any | None:
    """Return an optional library; None: it is not installed."""
    try:
        if name == "brotli":
            import brotli

            return brotli
        import zstandard

        return zstandard
    except ImportError:
        return None
