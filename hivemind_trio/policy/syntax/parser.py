"""Lexemes to tree, with every syntax error of a file found in one run.

The driver feeds Lark's LALR machine one lexeme at a time. On an error it reports, cuts both of the machine's stacks
back to where the current statement began, and goes on at the next statement at the same depth of braces; a block whose
head is wrong is still read, so that what is wrong inside it is said too. Lark's own `on_error` drops one token and
resumes, which in a language of statements glues two of them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

import attrs

from hivemind_trio.policy.diagnostics.collector import ProgressListener, untold
from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic, Fix, Label, Severity
from hivemind_trio.policy.diagnostics.suggest import suggestion
from hivemind_trio.policy.schema import DECLARATIONS
from hivemind_trio.policy.source.edits import Edit
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.source.string_literals import ESCAPES, bad_escapes

from .ast import File, Item, Statement
from .foreign.formats import other_format
from .foreign.respelling import respelled
from .foreign.statements import CONDITIONALS
from .lexeme import Lexeme
from .lexer import ENDS_BRACKETS, TOLD_EVERY, significant, words

if TYPE_CHECKING:
    from lark.parsers.lalr_interactive_parser import InteractiveParser

NESTING_MAX: Final = 64
"""Braces, brackets and `not`s within each other. Nothing that walks the tree needs to fear for the stack."""

BROKEN: Final = "?"
"""The head of a statement that could not be read but whose block could. No name is spelt so."""

_CLOSER: Final = {"LBRACE": "}", "LSQB": "]", "LPAR": ")"}
_OPENER_OF: Final = {"RBRACE": "LBRACE", "RSQB": "LSQB", "RPAR": "LPAR"}

_WORDS: Final = {
    "NAME": "a name",
    "STRING": "a quoted text",
    "QTY": "a number",
    "CLOCK": "a time of day",
    "CMP": "a comparison",
    "_DOTDOT": "`..`",
    "_NL": "the end of the line",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "SLASH": "`/`",
}


def parse(text: str, source: int, progress: ProgressListener = untold) -> tuple[File, list[Diagnostic]]:
    """Return the statements that could be read, and what is wrong with the rest. Never raises, whatever the text."""
    if (other := other_format(text)) is not None:
        everything = Span(source, 0, len(text))
        first = Span(source, *other.span)
        return File(source, (), (everything,)), [
            Diagnostic(code="HM012", severity=Severity.ERROR, message=other.message, span=first, help=other.help)
        ]
    pieces = words(text, source, progress)
    file, found = _driven(text, source, pieces, progress)
    if not found and not any(one.type == "NAME" and one.text in CONDITIONALS for one in pieces):
        return file, found
    pieces, slips, doubtful = respelled(text, pieces)
    if not slips:
        return file, found
    file, found = _driven(text, source, pieces, progress)
    file = attrs.evolve(file, damaged=tuple(sorted((*file.damaged, *doubtful))))
    told = {slip.span for slip in slips}  # what is put there instead may not fit either: that is the same mistake
    found = [one for one in found if one.span not in told]
    return file, sorted([*slips, *found], key=lambda one: one.span.start)


def _driven(
    text: str, source: int, pieces: Sequence[Lexeme], progress: ProgressListener
) -> tuple[File, list[Diagnostic]]:
    driver = _Driver(source, text, progress)
    return driver.run(list(significant(pieces)), Span(source, len(text), len(text)))


@final
@attrs.define(eq=False)
class _Driver:
    source: int
    text: str
    progress: ProgressListener
    diagnostics: list[Diagnostic] = attrs.field(init=False, factory=list)
    _open: list[Lexeme] = attrs.field(init=False, factory=list)
    """Brackets and braces not yet closed, outermost first."""
    _marks: list[int] = attrs.field(init=False, factory=list)
    """Depth of the machine's stack where the current statement began, for each open brace; the file's own first."""
    _starts: list[int] = attrs.field(init=False, factory=list)
    """Beside `_marks`, where in the text that statement begins."""
    _damaged: list[Span] = attrs.field(init=False, factory=list)
    _lets: set[int] = attrs.field(init=False, factory=set)
    """Spans at which a `let` without a value has been reported."""

    def run(self, sequence: Sequence[Lexeme], end: Span) -> tuple[File, list[Diagnostic]]:
        from lark.exceptions import UnexpectedToken

        from .grammar import grammar

        if (deep := _too_deep(sequence)) is not None:
            message = f"nested more than {NESTING_MAX} deep"
            everything = Span(self.source, 0, end.end)
            return File(self.source, (), (everything,)), [
                Diagnostic(code="HM007", severity=Severity.ERROR, message=message, span=deep.span)
            ]
        machine = grammar().parse_interactive(start="start")
        self._marks = [len(machine.parser_state.state_stack)]
        self._starts = [0]
        index = 0
        while index < len(sequence):
            if index % TOLD_EVERY == 0:
                self.progress("reading", index, len(sequence))
            index = self._step(machine, sequence, index, UnexpectedToken)
        for opener in reversed([lexeme for lexeme in self._open if lexeme.type == "LBRACE"]):
            gap = "" if self.text.endswith("\n") else "\n"
            at_end = Fix((Edit(Span(self.source, end.end, end.end), f"{gap}}}\n"),), is_safe=False)
            fix = at_end if self._open[-1].type == "LBRACE" else None  # a bracket in it is to be closed first
            self._report("HM004", "unclosed `{`", opener.span, help="add `}` where the block ends", fix=fix)
            self._damaged.append(Span(self.source, self._starts[-2], end.end))
            self._close(machine, sequence, end)
        statements = self._without_broken(self._finish(machine, sequence))
        return File(self.source, statements, tuple(sorted(self._damaged))), self.diagnostics

    def _step(
        self, machine: InteractiveParser, sequence: Sequence[Lexeme], index: int, unexpected: type[Exception]
    ) -> int:
        """Take one lexeme in, or report it and skip; the index to go on at.

        Args:
            unexpected: What the machine raises; to import it in here for every lexeme takes as long as a lexeme.
        """
        lexeme = sequence[index]
        if lexeme.type == "STRING":
            self._check_escapes(lexeme)
        if lexeme.type == "RBRACE" and not any(opener.type == "LBRACE" for opener in self._open):
            self._report("HM005", "unmatched `}`", lexeme.span, help="delete it", replacement="")
            return index + 1
        try:
            self._feed(machine, lexeme)
        except unexpected:
            if (after := self._let_of_nothing(sequence, index)) is not None:
                self._forget(machine, sequence[after - 1].span.start)
                return after
            if self._begins_anew(machine, sequence, index):
                return index
            # Of a bracket that ends with its line, the word that cannot be in it says more than the line's end.
            ends = lexeme.type == "_NL" and lexeme.text != ";" and self._inside_brackets()
            self._explain(machine, sequence, index + 1 if ends else index)
            return self._recover(machine, sequence, index)
        return index + 1

    def _close(self, machine: InteractiveParser, sequence: Sequence[Lexeme], end: Span) -> None:
        """End a block at the end of the text, in the middle of a statement if need be."""
        from lark.exceptions import UnexpectedToken

        brace = Lexeme("RBRACE", "}", end)
        try:
            self._feed(machine, brace)
        except UnexpectedToken:
            self._explain(machine, [*sequence, Lexeme("$END", "", end)], len(sequence))
            self._recover(machine, [], 0)
            self._feed(machine, brace)

    def _feed(self, machine: InteractiveParser, lexeme: Lexeme) -> None:
        # Lark looks at nothing but `.type`, so that our own lexemes, which know their file, can be fed to it.
        machine.feed_token(lexeme)  # type: ignore[arg-type]  # see above
        if lexeme.type in _CLOSER:
            self._open.append(lexeme)
        elif lexeme.type in _OPENER_OF and self._open:
            self._open.pop()
        depth = len(machine.parser_state.state_stack)
        if lexeme.type == "LBRACE":
            self._marks.append(depth)
            self._starts.append(lexeme.span.end)
        elif lexeme.type == "RBRACE":
            self._marks.pop()
            self._starts.pop()
        elif lexeme.type == "_NL":
            self._marks[-1] = depth
            self._starts[-1] = lexeme.span.end

    def _begins_anew(self, machine: InteractiveParser, sequence: Sequence[Lexeme], index: int) -> bool:
        """Report a statement that stands behind a complete one without a separator, and put one between them."""
        lexeme = sequence[index]
        if lexeme.type not in ("NAME", "LET", "EXPECT") or self._inside_brackets():
            return False
        accepted: set[str] = machine.accepts()  # type: ignore[no-untyped-call]  # Lark's
        if "_NL" not in accepted or "NAME" in accepted:
            return False
        if lexeme.type == "NAME" and len(self._marks) == 1 and suggestion(lexeme.text, DECLARATIONS) is None:
            return False  # it begins no declaration, so a separator would make it worse
        help_ = f"put a `;` before it, or a new line: write `; {lexeme.text}`"
        self._report("HM003", f"unexpected {_shown(lexeme)}", lexeme.span, help=help_, replacement=f"; {lexeme.text}")
        self._feed(machine, Lexeme("_NL", ";", Span(self.source, lexeme.span.start, lexeme.span.start)))
        return True

    def _recover(self, machine: InteractiveParser, sequence: Sequence[Lexeme], index: int) -> int:
        """Forget the current statement; go on after it, or inside its block if it has one."""
        stop = index
        while stop < len(sequence) and sequence[stop].type not in ("_NL", "LBRACE", "RBRACE"):
            stop += 1
        self._forget(machine, sequence[stop].span.start if stop < len(sequence) else len(self.text))
        for lexeme in sequence[index:stop]:
            if lexeme.type == "STRING":
                self._check_escapes(lexeme)
        if stop == len(sequence):
            return stop
        if sequence[stop].type == "_NL":
            self._starts[-1] = sequence[stop].span.end
            return stop + 1  # the machine stands behind a separator, or a brace, already
        if sequence[stop].type == "LBRACE":
            self._feed(machine, Lexeme("NAME", BROKEN, sequence[stop].span))
        return stop

    def _forget(self, machine: InteractiveParser, end: int) -> None:
        """Put the machine back to where the current statement began; what is forgotten goes on to `end`."""
        self._damaged.append(Span(self.source, self._starts[-1], max(self._starts[-1], end)))
        state = machine.parser_state
        mark = self._marks[-1]
        del state.state_stack[mark:]
        del state.value_stack[mark - 1 :]
        while self._open and self._open[-1].type != "LBRACE":
            self._open.pop()

    def _finish(self, machine: InteractiveParser, sequence: Sequence[Lexeme]) -> tuple[Statement, ...]:
        from lark.exceptions import UnexpectedToken

        try:
            statements: tuple[Statement, ...] = machine.feed_eof()  # type: ignore[no-untyped-call]  # Lark's
        except UnexpectedToken:
            last = sequence[-1].span
            after = Lexeme("$END", "", Span(last.source, last.end, last.end))
            if self._let_of_nothing(sequence, len(sequence)) is None:
                self._explain(machine, [*sequence, after], len(sequence))
            self._recover(machine, [], 0)
            statements = machine.feed_eof()  # type: ignore[no-untyped-call]  # Lark's
        return statements

    def _without_broken(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """Leave out what stood in for an unreadable head; its block was read only for its errors."""
        kept: list[Statement] = []
        for statement in statements:
            if isinstance(statement, Item):
                if statement.head.text == BROKEN:
                    self._damaged.append(statement.span)
                    continue
                if statement.block is not None:
                    inner = self._without_broken(statement.block.statements)
                    statement = attrs.evolve(statement, block=attrs.evolve(statement.block, statements=inner))
            kept.append(statement)
        return tuple(kept)

    # ---- what to say ----

    def _let_of_nothing(self, sequence: Sequence[Lexeme], index: int) -> int | None:
        """Report a `let NAME =` that ends there; the index to go on at. None: it is something else.

        A value may stand on the next line, so the word that is refused may be the second one of the next statement.
        """
        for equal in (index - 1, index - 2):
            if equal < 2 or equal in self._lets or sequence[equal].type != "EQUAL" or sequence[equal - 2].type != "LET":
                continue
            following = sequence[equal + 1] if equal + 1 < len(sequence) else None
            between = self.text[sequence[equal].span.end : following.span.start] if following is not None else "\n"
            if following is not None and following.type not in ("_NL", "RBRACE") and "\n" not in between:
                return None
            if equal == index - 2 and sequence[index - 1].type != "NAME":
                continue  # a bracket without its beginning, which has been said
            name = sequence[equal - 1].text
            span = sequence[equal].span
            self._report("HM003", f"`let {name}` has no value", span, help=f'write `let {name} = "..."`, or delete it')
            self._lets.add(equal)
            return equal + 2 if following is not None and following.type == "_NL" else equal + 1
        return None

    def _explain(self, machine: InteractiveParser, sequence: Sequence[Lexeme], index: int) -> None:
        lexeme = sequence[index]
        if lexeme.type == "ERROR":
            touches = self.text[: lexeme.span.start][-1:].strip() and self.text[lexeme.span.end :][:1].strip()
            fix = Fix.replacing(lexeme.span, " " if touches else "", is_safe=False)
            self._report("HM001", f"`{lexeme.text}` is not in the language", lexeme.span, help="delete it", fix=fix)
        elif lexeme.type in ("RSQB", "RPAR") and not self._inside_brackets():
            message = f"unmatched `{lexeme.text}`"
            self._report("HM005", message, lexeme.span, help="delete it", replacement="")
        elif (opener := self._unclosed(lexeme)) is not None:
            self._open_still(opener, sequence, index)
        elif lexeme.type == "CMP" and _comparing(sequence, index):
            self._report("HM003", "a comparison cannot be chained", lexeme.span, help="join two with `and`")
        else:
            self._unexpected(machine, lexeme)

    def _open_still(self, opener: Lexeme, sequence: Sequence[Lexeme], index: int) -> None:
        """Report a bracket that is open where something stands that cannot be in it."""
        lexeme, closer, label = (
            sequence[index],
            _CLOSER[opener.type],
            Label(opener.span, f"this `{opener.text}` is unclosed"),
        )
        note = f"expected `,` or `{closer}`" if opener.type == "LSQB" else f"expected `{closer}`"
        put: str | None = f"{closer} {lexeme.text}"
        after = sequence[index + 1] if index + 1 < len(sequence) else None
        if lexeme.type in ("RSQB", "RPAR"):
            put = closer
        elif opener.type == "LSQB" and lexeme.type == "NAME" and after is not None and after.type in ("RSQB", "COMMA"):
            put = f", {lexeme.text}"
        before = [one for one in sequence[:index] if one.type != "_NL" and one.span.start >= opener.span.start]
        begin = self.text.rfind("\n", 0, lexeme.span.start) + 1
        previous = next((one for one in reversed(before) if one.span.start < begin), before[-1])
        if lexeme.type in ("_NL", "$END") or previous is not before[-1] or previous.span.end <= begin:
            put = None
        line = self.text.count("\n", 0, previous.span.end) + 1
        help_ = f"add `{closer}` at the end of line {line}" if put is None else f"write `{put}`"
        message = f"unexpected {_shown(lexeme)}"
        end = previous.span.end
        fix = Fix.replacing(lexeme.span, put) or Fix((Edit(Span(self.source, end, end), closer),))
        self._report("HM004", message, lexeme.span, note=note, labels=(label,), help=help_, fix=fix)

    def _unexpected(self, machine: InteractiveParser, lexeme: Lexeme) -> None:
        accepted: set[str] = machine.accepts()  # type: ignore[no-untyped-call]  # Lark's
        expected = sorted(_shown_type(type_) for type_ in accepted - {"BADSTRING", "ERROR", "$END"})
        note = ""
        if 0 < len(expected) <= 6:
            note = f"expected {_listed(expected)}"
        help_ = "a condition stands before the block: `when ... { ... }`" if lexeme.type == "WHEN" else ""
        self._report("HM003", f"unexpected {_shown(lexeme)}", lexeme.span, note=note, help=help_)

    def _inside_brackets(self) -> bool:
        return bool(self._open) and self._open[-1].type != "LBRACE"

    def _unclosed(self, lexeme: Lexeme) -> Lexeme | None:
        """Return the bracket that this lexeme cannot be inside of."""
        if not self._inside_brackets():
            return None
        if lexeme.type in ("LBRACE", "RBRACE", "LET", "EXPECT", "_NL", "$END", "NAME", "RPAR", "RSQB", "EQUAL"):
            return self._open[-1]
        return None

    def _check_escapes(self, lexeme: Lexeme) -> None:
        for offset in bad_escapes(lexeme.text[1:-1]):
            start = lexeme.span.start + 1 + offset
            known = _listed([f"`\\{mark}`" for mark in ESCAPES])
            self._report(
                "HM010",
                f"`{lexeme.text[1 + offset : 3 + offset]}` is not an escape sequence",
                Span(self.source, start, start + 2),
                note=f"known: {known}",
                help=f"for a backslash write `\\\\{lexeme.text[2 + offset]}`",
                replacement=f"\\\\{lexeme.text[2 + offset]}",
            )

    def _report(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        note: str = "",
        labels: tuple[Label, ...] = (),
        help: str = "",  # noqa: A002 - the field's name
        replacement: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        self.diagnostics.append(
            Diagnostic(
                code=code,
                severity=Severity.ERROR,
                message=message,
                span=span,
                note=note,
                labels=labels,
                help=help,
                fix=fix or Fix.replacing(span, replacement),
            )
        )


def _too_deep(sequence: Sequence[Lexeme]) -> Lexeme | None:
    """Return the first lexeme that is nested too deeply. The `not`s before a bracket count for all that it holds."""
    opened: list[tuple[str, int]] = []  # the type of each opener, and by how much it is deeper than what it is in
    depth = negations = 0
    for lexeme in sequence:
        if lexeme.type in ENDS_BRACKETS:
            while opened and opened[-1][0] != "LBRACE":
                depth -= opened.pop()[1]
        if lexeme.type in _CLOSER:
            opened.append((lexeme.type, negations + 1))
            depth += negations + 1
        elif lexeme.type in _OPENER_OF and opened:
            depth -= opened.pop()[1]
        negations = negations + 1 if lexeme.type == "NOT" else 0
        if depth + negations > NESTING_MAX:
            return lexeme
    return None


def _comparing(sequence: Sequence[Lexeme], index: int) -> bool:
    """Return True if an earlier comparison in the same statement has this one's left side as its right."""
    return index >= 2 and sequence[index - 2].type == "CMP"


def _shown(lexeme: Lexeme) -> str:
    if lexeme.type == "$END":
        return "end of the file"
    if lexeme.type == "_NL":
        return "`;`" if lexeme.text == ";" else "end of the line"
    return f"`{lexeme.text}`"


def _shown_type(type_: str) -> str:
    return _WORDS.get(type_, f"`{type_.lower()}`")


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
