"""The Pygments lexer, found by its entry point: Sphinx, MkDocs and `pygmentize` colour policies once this is installed.

The language's own lexer cuts the text, so that the two cannot disagree. Nothing of ours imports this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, final

from pygments.lexer import Lexer
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from .token_roles import Role, roles

TOKENS: Final[Mapping[Role, Any]] = {
    Role.SPACE: Whitespace,
    Role.COMMENT: Comment.Single,
    Role.DECLARATION: Keyword.Declaration,
    Role.DECLARED: Name.Class,
    Role.SETTING: Name.Attribute,
    Role.OPTION: Keyword.Pseudo,
    Role.FIELD: Name.Variable,
    Role.FUNCTION: Name.Builtin,
    Role.NAME: Name,
    Role.WORD: Keyword,
    Role.LOGIC: Operator.Word,
    Role.STRING: String.Double,
    Role.NUMBER: Number,
    Role.OPERATOR: Operator,
    Role.PUNCTUATION: Punctuation,
    Role.WRONG: Error,
}


@final
class HmpLexer(Lexer):  # type: ignore[misc]  # Pygments has no types
    """For `.hmp` files, and code blocks marked `hmp`."""

    name = "Hivemind policy"
    aliases: ClassVar = ["hmp"]
    filenames: ClassVar = ["*.hmp"]
    mimetypes: ClassVar = ["text/x-hmp"]

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Offset, token and text of every piece."""
        for piece, role in roles(text):
            yield piece.span.start, TOKENS[role], piece.text
