"""`hivemind-trio check --fix` and `--diff`: fixes of diagnostics, applied to the files or shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, final

import attrs
import click

from hivemind_trio.cli.policy_files import STDIN, allowed_folders

from .rewriting import print_diff, replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hivemind_trio.policy import AppliedFix, Checked

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@final
@attrs.frozen
class Fixes:
    """Fixes of the policies that the command line names, not yet written."""

    before: tuple[Checked, ...]
    after: tuple[Checked, ...]
    texts: dict[str, str]
    """Path -> new text, of the files that change."""
    applied: tuple[AppliedFix, ...]

    def failed_writes(self) -> list[str]:
        """Write every changed file; return an error message for each that could not be written.

        Standard input goes to standard output, changed or not.
        """
        errors = []
        for path, text in self.texts.items():
            try:
                if path != STDIN:
                    self._write(Path(path), text)
            except OSError as error:
                errors.append(f"{path}: {error.strerror or error}")
        for checked in self.before:
            if checked.paths[0] == STDIN:
                sys.stdout.buffer.write(self.texts.get(STDIN, checked.sources[0].text).encode())
        return errors

    def _write(self, path: Path, text: str) -> None:
        content = path.read_bytes()
        if content.decode("utf-8-sig") != self._old(str(path)):
            raise OSError(None, "changed while it was checked; nothing is written")
        mark = BYTE_ORDER_MARK if content.startswith(BYTE_ORDER_MARK) else b""
        replace_file(path, mark + text.encode())

    def _old(self, path: str) -> str:
        return next(
            source.text
            for checked in self.before
            for source, other in zip(checked.sources, checked.paths, strict=True)
            if other == path
        )

    def print_diff(self, *, color: bool) -> None:
        """Print what would change, file by file, with keys hidden."""
        from hivemind_trio.policy import hidden_text

        for path in self.texts:
            old, new = (
                next(hidden_text(one, one.paths.index(path)) for one in policies if path in one.paths)
                for policies in (self.before, self.after)
            )
            print_diff(path, old, new, "fixed", color=color)

    def say(self, *, would: bool, err: bool) -> None:
        """Print a line for each fix, and how many there are."""
        from hivemind_trio.policy import masked, visible

        done = "would fix" if would else "fixed"
        for one in self.applied:
            place = f"{visible(one.name)}:{one.line}:{one.column}"
            click.echo(f"{done} {place}: {one.found.code}: {visible(masked(one.found.message))}", err=err)


def fixed(policies: Sequence[Checked], *, unsafe: bool) -> Fixes:
    """Return the fixes of several policies; a file that two of them include is fixed once.

    Args:
        policies: As they were checked.
        unsafe: Apply fixes too that guess a name or an amount, or change what the policy does.
    """
    from hivemind_trio.host import DiskFiles
    from hivemind_trio.policy import EditedFiles, Files, check, fix

    files: Files = DiskFiles()
    for checked in policies:
        if checked.paths[0] == STDIN:
            files = EditedFiles(files, {STDIN: checked.sources[0].text})
    texts: dict[str, str] = {}
    done: list[AppliedFix] = []
    for checked in policies:
        now = EditedFiles(files, dict(texts))
        if texts.keys() & set(checked.paths):
            checked = check(checked.paths[0], now, allowed=allowed_folders())
        result = fix(checked, now, unsafe=unsafe, allowed=allowed_folders())
        texts |= result.texts
        done += result.applied
    after = [check(one.paths[0], EditedFiles(files, texts), allowed=allowed_folders()) for one in policies]
    return Fixes(tuple(policies), tuple(after), texts, tuple(done))


def fixable_line(policies: Sequence[Checked], *, is_fixed: bool) -> str:
    """Return a line with the number of problems that `--fix` would mend; empty if there are none.

    Args:
        policies: As they were checked.
        is_fixed: True if `--fix` has been applied, so only unsafe fixes are left.
    """
    from hivemind_trio.policy import fixable

    safe = 0 if is_fixed else sum(len(fixable(one)) for one in policies)
    unsafe = sum(len(fixable(one, unsafe=True)) - len(fixable(one)) for one in policies)
    more = f"{unsafe} more with --unsafe-fixes" if safe else f"{unsafe} fixable with --fix --unsafe-fixes"
    return ", ".join([*([f"{safe} fixable with --fix"] if safe else []), *([more] if unsafe else [])])
