"""Tokenizers of OpenAI's models, from the extra `tokenizer`. Their ranks come with the package: nothing is fetched."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Final

USUAL: Final = "o200k_base"


class TokenizerNotInstalled(Exception):  # noqa: N818 - as the errors of other extras
    """The package is not there."""

    help: Final = "install `hivemind-trio[tokenizer]`, or write `estimate learned`"

    def __init__(self) -> None:
        super().__init__("`estimate tokenizer` needs the package bpe-openai")


@cache
def counter(encoding: str = USUAL) -> Callable[[str], int]:
    """Return what counts the tokens of a text; the first time it reads the ranks, which takes 1 to 3 s.

    Raises:
        TokenizerNotInstalled: The extra is not there.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the way in which it opens its own files
        try:
            import bpe_openai
        except ImportError:
            raise TokenizerNotInstalled from None
        encode = bpe_openai.get_encoding(encoding).encode_ordinary
    return lambda text: len(encode(text))
