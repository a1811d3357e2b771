"""Files as a git repository has them at some revision, as the language reads them. Blocking, and reads only."""

from __future__ import annotations

import fnmatch
import glob
import os
import posixpath
import subprocess
from pathlib import Path
from typing import Final, Self, final

import attrs

from .disk_files import READ_MAX

LINKS_MAX: Final = 8
"""Symbolic links followed one after the other."""
PATIENCE_S: Final = 60.0
"""For one answer of git: a partial clone may fetch what it lacks."""

_LINK: Final = "120000"
_FILES: Final = ("100644", "100755")


class GitError(Exception):
    """Git has no such repository or revision; the message says what to do about it."""


@final
@attrs.frozen(kw_only=True)
class GitFiles:
    """`policy.Files` over one commit. A path is written as git writes it: `main:./team.hmp`, relative to where one is.

    Nothing of the working tree is read, and no filter or text conversion applies.
    """

    revision: str
    """As it was given."""
    _top: str
    """The working tree's, absolute."""
    _commit: str
    _modes: dict[str, str]
    """Path from the top -> its mode, of every file of the commit."""

    @classmethod
    def at(cls, revision: str, path: str) -> Self:
        """Return the commit in the repository of the folder that `path` is in.

        Raises:
            GitError: There is no git, no repository, or no such revision.
        """
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise GitError(f"no folder `{folder}`")
        top = _git(folder, "rev-parse", "--show-toplevel")
        if top.returncode:
            raise GitError(f"`{folder}` is in no git repository")
        named = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if named.returncode:
            raise GitError(f"no revision `{revision}` in the repository of `{folder}`")
        commit = named.stdout.decode().strip()
        listed = _git(folder, "ls-tree", "-r", "-z", "--full-tree", commit)
        if listed.returncode:
            raise GitError(f"`{revision}` cannot be read: {_said(listed)}")
        modes = {}
        for entry in listed.stdout.decode("utf-8", "surrogateescape").split("\0"):
            about, tab, name = entry.partition("\t")
            if tab:
                modes[name] = about.split()[0]
        return cls(revision=revision, top=os.fsdecode(top.stdout).rstrip("\n"), commit=commit, modes=modes)

    def named(self, path: str) -> str:
        """Return the name of `path` at this revision, for messages too."""
        plain = posixpath.normpath(path)
        if plain.startswith("../"):
            plain = posixpath.abspath(plain)
        return f"{self.revision}:{plain}" if plain.startswith("/") else f"{self.revision}:./{plain}"

    def has(self, path: str) -> bool:
        """Return True if it existed as a file or a link."""
        return self._from_top(path) in self._modes

    def read(self, path: str) -> bytes:
        """Return the file's bytes.

        Raises:
            OSError: It was not there, is no regular file, or is larger than what a policy may be.
        """
        name = self._from_top(path)
        for _ in range(LINKS_MAX):
            mode = self._modes.get(name)
            if mode is None:
                raise FileNotFoundError(None, f"not there at {self.revision}", path)
            if mode in _FILES:
                return self._blob(name, path)
            if mode != _LINK:
                break
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), os.fsdecode(self._blob(name, path))))
        raise OSError(None, "not a regular file", path)

    def resolve(self, path: str) -> str:
        """Return the path: links of a revision lead to files of that revision."""
        return path

    def glob(self, pattern: str) -> list[str]:
        """Files that match, sorted; `**` crosses folders, and a name that begins with a dot has to be spelt out."""
        mine = f"{self.revision}:"
        prefix = next((one for one in (mine, glob.escape(mine)) if pattern.startswith(one)), "")
        parts = pattern[len(prefix) :].split("/")
        # Names are compared below the last folder that has no wildcard.
        fixed: list[str] = []
        while len(parts) > 1 and not glob.has_magic(parts[0]):
            fixed.append(parts.pop(0))
        folder = "/".join(fixed)
        above = self._from_top(f"{folder}/" if fixed else ".")
        below = "" if above == "." else f"{above}/"
        names = [name[len(below) :] for name in self._modes if name.startswith(below)]
        lead = (mine if prefix else "") + (f"{folder}/" if fixed else "")
        return sorted(f"{lead}{name}" for name in names if _fits(parts, name.split("/")))

    def _from_top(self, path: str) -> str:
        plain = path.removeprefix(f"{self.revision}:")
        folder, name = os.path.split(os.path.abspath(plain))
        whole = os.path.join(os.path.realpath(folder), name) if name else os.path.realpath(folder)
        return Path(os.path.relpath(whole, os.path.realpath(self._top))).as_posix()

    def _blob(self, name: str, path: str) -> bytes:
        answer = _git(self._top, "cat-file", "blob", f"{self._commit}:{name}")
        if answer.returncode:
            raise OSError(None, _said(answer), path)
        if len(answer.stdout) > READ_MAX:
            raise OSError(None, f"larger than {READ_MAX >> 20} MiB", path)
        return answer.stdout


def _git(folder: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in the folder.

    Raises:
        GitError: It is not installed, or does not answer.
    """
    try:
        return subprocess.run(  # noqa: S603 - words of ours, and a revision behind `--end-of-options`
            ["git", "-C", folder, *words],  # noqa: S607 - the user's own git, wherever it is
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            env=os.environ | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except FileNotFoundError as error:
        raise GitError("git is not installed, or not on the PATH") from error
    except subprocess.TimeoutExpired as error:
        raise GitError(f"git has not answered for {PATIENCE_S:g} s") from error


def _said(answer: subprocess.CompletedProcess[bytes]) -> str:
    lines = answer.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else "git gives no reason"


def _fits(pattern: list[str], name: list[str]) -> bool:
    """Return True if the parts of a path match the parts of a pattern."""
    if not pattern:
        return not name
    first, rest = pattern[0], pattern[1:]
    if first == "**" and rest:
        return _fits(rest, name) or (bool(name) and not name[0].startswith(".") and _fits(pattern, name[1:]))
    if not name or (name[0].startswith(".") and not first.startswith(".")):
        return False
    return fnmatch.fnmatchcase(name[0], first) and _fits(rest, name[1:])
