"""Policies as the command line names them: a path, or `-` for standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs
import click

from .console import fail

if TYPE_CHECKING:
    from hivemind_trio.policy import Checked, Files, Program, ProgressListener

STDIN: Final = "<stdin>"


@final
@attrs.frozen
class _WithStdin:
    """The disk, and the text that was piped in, whose includes are relative to the working directory."""

    disk: Files
    text: bytes

    def read(self, path: str) -> bytes:
        return self.text if path == STDIN else self.disk.read(path)

    def resolve(self, path: str) -> str:
        """Return the path without links."""
        return self.disk.resolve(path)

    def glob(self, pattern: str) -> list[str]:
        return self.disk.glob(pattern)


def allowed_folders() -> tuple[str, ...]:
    """Return the folders of `--allow-include`."""
    context = click.get_current_context(silent=True)
    return () if context is None else tuple(context.find_root().params.get("allow_include", ()))


def checked_policy(path: str, *, environment: bool = False, progress: ProgressListener | None = None) -> Checked:
    """Check one policy.

    Args:
        path: `-`: standard input.
        environment: Look for its secrets on this machine too.
        progress: Told of how far it is.
    """
    from hivemind_trio.host import DiskFiles
    from hivemind_trio.policy import check, untold

    files: Files = DiskFiles()
    if path == "-":
        path, files = STDIN, _WithStdin(files, sys.stdin.buffer.read())
    checked = check(path, files, progress or untold, allowed=allowed_folders())
    return with_environment(checked) if environment else checked


def with_environment(checked: Checked) -> Checked:
    """Add the diagnostics of the secrets and base URLs that this machine has or lacks."""
    from hivemind_trio.host import Secrets, probe
    from hivemind_trio.policy import check_bases, check_keys, check_secrets

    secrets = Secrets.resolve(checked.secret_spans)
    found = (
        *checked.diagnostics,
        *check_secrets(checked, probe),
        *check_bases(checked, secrets),
        *check_keys(checked, secrets),
    )
    return attrs.evolve(checked, diagnostics=tuple(sorted(found, key=lambda one: (one.span, one.code))))


def with_secret_files(checked: Checked) -> Checked:
    """Add the errors of secret files that are here and hold no secret, such as one with two lines."""
    from hivemind_trio.host import probe_content
    from hivemind_trio.policy import check_secrets

    found = (*checked.diagnostics, *check_secrets(checked, probe_content))
    return attrs.evolve(checked, diagnostics=tuple(sorted(found, key=lambda one: (one.span, one.code))))


def providing(checked: Checked) -> Program:
    """Return the program of a policy without errors, if there is anybody to call; otherwise end with status 2."""
    assert checked.program is not None
    if not checked.program.providers:
        fail(
            f"{checked.paths[0]}: the policy declares no provider",
            hint="`provider anthropic { key env(ANTHROPIC_API_KEY) }`",
        )
    return checked.program


@final
@attrs.frozen
class Named:
    """A policy that the command line names."""

    path: str
    is_found: bool
    """True if it was found in a folder, so another file may include it."""


def policies(paths: tuple[str, ...], command: str = "check") -> tuple[Named, ...]:
    """Return the policies that are named.

    A folder stands for all files below it, and no path for the working directory.
    """
    names: list[Named] = []
    for path in map(Path, paths or (".",)):
        if path.is_dir():
            inside = below(path)
            if not inside:
                what = "this folder or below" if path == Path() else str(path)
                fail(f"no *.hmp in {what}", hint=f"name a file: `hivemind-trio {command} team.hmp`")
            names += [Named(str(one), is_found=True) for one in inside]
        else:
            names.append(Named(str(path), is_found=False))
    return tuple(names)


def below(folder: Path) -> list[Path]:
    """Return the policy files of a folder and its subfolders, without hidden folders."""
    found = (path for path in folder.rglob("*.hmp") if path.is_file())
    return sorted(
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts[:-1])
    )


def without_parts(named: Sequence[Named], checked: Sequence[Checked]) -> tuple[list[Checked], dict[str, str]]:
    """Leave out what was found in a folder and is only a part of another policy; name that policy for each."""
    includers: dict[str, str] = {}
    for one in checked:
        for part in one.paths[1:]:
            includers.setdefault(part, one.paths[0])
    kept: list[Checked] = []
    for name, one in zip(named, checked, strict=True):
        if not name.is_found or one.paths[0] not in includers:
            kept.append(one)
    covered = {path for one in kept for path in one.paths}
    # Of files that include each other in a circle, none is the first: each stays.
    kept = [one for one in checked if one in kept or one.paths[0] not in covered]
    checked_paths = {one.paths[0] for one in kept}
    left_out = {one.paths[0]: includers[one.paths[0]] for one in checked if one.paths[0] not in checked_paths}
    return kept, left_out
