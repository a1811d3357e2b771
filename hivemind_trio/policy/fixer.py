"""Application of fixes: those of a policy's diagnostics, tried before they are kept, until none is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from .checker import check
from .compile.checked import Checked
from .diagnostics.diagnostic import Diagnostic, Severity
from .source.edits import Edit, applied
from .source.files import Files

ROUNDS_MAX: Final = 20
"""Rounds of fixes. Each applies every fix that overlaps no other one, so few policies need three."""

TRIALS_MAX: Final = 32
"""Checks of halves in one round, where new errors are not on the lines of the fixes that cause them."""

_SYNTAX: Final = "HM00"
"""Codes of syntax errors begin so. They can hide errors of their statement, which are no fault of a fix."""


@final
@attrs.frozen
class EditedFiles:
    """Files, some of them with other texts."""

    files: Files
    texts: Mapping[str, str]

    def read(self, path: str) -> bytes:
        """Return the edited text, or the file's own bytes."""
        return self.texts[path].encode("utf-8", "surrogatepass") if path in self.texts else self.files.read(path)

    def resolve(self, path: str) -> str:
        """Return the path without links."""
        return self.files.resolve(path)

    def glob(self, pattern: str) -> list[str]:
        """Return the files that match, which edits do not change."""
        return self.files.glob(pattern)


@final
@attrs.frozen
class AppliedFix:
    """A diagnostic that a fix has mended, and its place at that time."""

    found: Diagnostic
    name: str
    line: int
    column: int


@final
@attrs.frozen
class FixedPolicy:
    """A policy after its fixes."""

    checked: Checked
    texts: Mapping[str, str]
    """Path -> new text, of the files that have changed."""
    applied: tuple[AppliedFix, ...]


def fix(checked: Checked, files: Files, *, unsafe: bool = False, allowed: Sequence[str] = ()) -> FixedPolicy:
    """Apply the fixes of a policy and of all that it includes, in memory.

    A fix is kept only if its diagnostic is gone afterwards and no new error is there. Of fixes that overlap, the first
    in the text is applied, and the others are looked at again in the next round.

    Args:
        checked: The policy.
        files: Its files; nothing is written.
        unsafe: Apply fixes too that guess a name or an amount, or change what the policy does.
        allowed: Folders that may be included from, beside that of the policy.
    """
    texts: dict[str, str] = {}
    done: list[AppliedFix] = []
    for _ in range(ROUNDS_MAX):
        trial = _Trial(checked, EditedFiles(files, texts), tuple(allowed))
        kept = trial.kept(fixable(checked, unsafe=unsafe))
        if not kept:
            break
        done += [_applied_fix(checked, found) for found in kept]
        texts |= trial.texts(kept)
        checked = trial.checked_with(kept)
    return FixedPolicy(checked, texts, tuple(done))


def fixable(checked: Checked, *, unsafe: bool = False) -> list[Diagnostic]:
    """Return the diagnostics that carry a fix that may be applied, in the order of the text."""
    return [one for one in checked.diagnostics if one.fix is not None and (unsafe or one.fix.is_safe)]


def amended(checked: Checked, edits: Iterable[Edit], files: Files, *, allowed: Sequence[str] = ()) -> Checked:
    """Check the same policy with edits applied."""
    return check(checked.paths[0], EditedFiles(files, edited_texts(checked, edits)), allowed=allowed)


def edited_texts(checked: Checked, edits: Iterable[Edit]) -> dict[str, str]:
    """Return path -> text with edits applied, of the files that they are in; a file keeps its line ends."""
    by_source: dict[int, list[Edit]] = {}
    for edit in edits:
        by_source.setdefault(edit.span.source, []).append(edit)
    texts = {}
    for source, of_source in by_source.items():
        text = checked.sources[source].text
        if "\r\n" in text:
            of_source = [attrs.evolve(edit, text=edit.text.replace("\n", "\r\n")) for edit in of_source]
        texts[checked.paths[source]] = applied(text, of_source)
    return texts


def made_worse(before: Checked, after: Checked, *, least: Severity = Severity.ERROR) -> Diagnostic | None:
    """Return the first problem that is there now and was not, however places have moved; None if there is none.

    Args:
        before: The policy.
        after: The same policy with edits.
        least: Severity of problems that count: warnings too, or errors alone.
    """
    counted = {Severity.ERROR} | ({Severity.WARNING} if least is Severity.WARNING else set())
    return next(_new(before, after, lambda one: one.severity in counted), None)


def _new(before: Checked, after: Checked, counts: Callable[[Diagnostic], bool]) -> Iterator[Diagnostic]:
    known = Counter(map(_key, before.diagnostics))
    for one in after.diagnostics:
        if counts(one):
            known[_key(one)] -= 1
            if known[_key(one)] < 0:
                yield one


def _key(found: Diagnostic) -> tuple[str, str]:
    return found.code, found.message


def _applied_fix(checked: Checked, found: Diagnostic) -> AppliedFix:
    source = checked.sources[found.span.source]
    line = source.line(found.span.start)
    begin = source.text.rfind("\n", 0, found.span.start) + 1
    return AppliedFix(found, source.name, line + 1, found.span.start - begin + 1)


@final
@attrs.define(eq=False)
class _Trial:
    """One round: fixes of a checked policy, tried together, then without those that do harm."""

    checked: Checked
    files: Files
    allowed: tuple[str, ...]
    _left: int = attrs.field(init=False, default=TRIALS_MAX)
    """Trials of halves that are left."""

    def kept(self, candidates: Sequence[Diagnostic]) -> list[Diagnostic]:
        """Return the fixes to apply: those of syntax errors alone while any of them helps."""
        for is_syntax in (True, False):
            left = [one for one in candidates if one.code.startswith(_SYNTAX) is is_syntax]
            while left:
                chosen = _disjoint(left)
                if kept := self._harmless(chosen) or self._halved([], chosen):
                    return kept
                left = [one for one in left if one not in chosen]
        return []

    def texts(self, kept: Iterable[Diagnostic]) -> dict[str, str]:
        """Return the texts with fixes applied."""
        return edited_texts(self.checked, [edit for one in kept if one.fix is not None for edit in one.fix.edits])

    def checked_with(self, kept: Iterable[Diagnostic]) -> Checked:
        """Check the policy with fixes applied."""
        return check(self.checked.paths[0], EditedFiles(self.files, self.texts(kept)), allowed=self.allowed)

    def _harmless(self, fixes: Sequence[Diagnostic]) -> list[Diagnostic]:
        """Return the fixes without those that do not help, or have a new error on their lines; mostly two checks."""
        left = list(fixes)
        while left:
            after = self.checked_with(left)
            vain, new = self._harm(left, after)
            if not vain and not new:
                break
            lines = {(one.span.source, after.sources[one.span.source].line(one.span.start)) for one in new}
            near = {number for number, line in _edited_lines(self.checked, left, after) if line in lines}
            better = [one for number, one in enumerate(left) if number not in near and _key(one) not in vain]
            if len(better) == len(left):
                return []
            left = better
        return left

    def _halved(self, kept: list[Diagnostic], more: Sequence[Diagnostic]) -> list[Diagnostic]:
        """Add as many fixes as help; each half by itself if they do not together."""
        if not more or not self._left:
            return kept
        self._left -= 1
        if self._harm([*kept, *more], self.checked_with([*kept, *more])) == (set(), []):
            return [*kept, *more]
        if len(more) == 1:
            return kept
        middle = len(more) // 2
        return self._halved(self._halved(kept, more[:middle]), more[middle:])

    def _harm(self, fixes: Sequence[Diagnostic], after: Checked) -> tuple[set[tuple[str, str]], list[Diagnostic]]:
        """Return the diagnostics that were to be gone and are not, and the new errors."""
        before, left = (Counter(map(_key, one.diagnostics)) for one in (self.checked, after))
        vain = {key for key, fixed in Counter(map(_key, fixes)).items() if left[key] > before[key] - fixed}
        is_syntax = all(one.code.startswith(_SYNTAX) for one in fixes)

        def counts(one: Diagnostic) -> bool:
            return one.severity is Severity.ERROR and (not is_syntax or one.code.startswith(_SYNTAX))

        return vain, list(_new(self.checked, after, counts))


def _edited_lines(
    before: Checked, fixes: Sequence[Diagnostic], after: Checked
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the number of each fix with each line, by source, that its edits are on afterwards."""
    edits = sorted((edit, number) for number, one in enumerate(fixes) if one.fix is not None for edit in one.fix.edits)
    source, moved = -1, 0
    for edit, number in edits:
        if edit.span.source != source:
            source, moved = edit.span.source, 0
        text = edit.text.replace("\n", "\r\n") if "\r\n" in before.sources[source].text else edit.text
        start = edit.span.start + moved
        moved += len(text) - (edit.span.end - edit.span.start)
        lines = after.sources[source]
        for line in range(lines.line(start), lines.line(start + len(text)) + 1):
            yield number, (source, line)


def _disjoint(candidates: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return those whose edits overlap no edit of an earlier one."""
    taken: list[Edit] = []
    kept: list[Diagnostic] = []
    for found in candidates:
        edits = found.fix.edits if found.fix is not None else ()
        if not any(_overlap(edit, other) for edit in edits for other in taken):
            taken += edits
            kept.append(found)
    return kept


def _overlap(one: Edit, other: Edit) -> bool:
    """Return True if two edits share text, or touch where one of them only inserts: their order would matter."""
    if one.span.source != other.span.source:
        return False
    start, end = max(one.span.start, other.span.start), min(one.span.end, other.span.end)
    inserts = one.span.start == one.span.end or other.span.start == other.span.end
    return start < end or (inserts and start == end)
