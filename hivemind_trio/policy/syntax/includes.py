"""A policy file and all that it includes, read and parsed."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final, final

import attrs

from hivemind_trio.policy.diagnostics.collector import ProgressListener, untold
from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic, Fix, Severity
from hivemind_trio.policy.schema import DECLARATIONS
from hivemind_trio.policy.source.edits import deletion
from hivemind_trio.policy.source.files import Files
from hivemind_trio.policy.source.secret_scan import SECRET_PLACES, find_keys
from hivemind_trio.policy.source.source_text import Source
from hivemind_trio.policy.source.span import Span

from .ast import File, Item, Let, Quantity, String
from .parser import NESTING_MAX, parse

FILE_BYTES_MAX: Final = 4 << 20
LANGUAGE_VERSION: Final = 1

_WILDCARD: Final = re.compile(r"[*?\[]")
_ALLOW: Final = re.compile(r"#\s*hmp:\s*allow\s+(HM\d{3})\b[ \t]*(.*)")


SOUGHT_LATER: Final = frozenset({"HM311", "HM390", "HM502"})
"""Codes that only the tests of a policy can report, so that an unused `allow` of them is no mistake."""


@final
@attrs.frozen
class Allow:
    """`# hmp: allow HM303 reason`: expected on this line, or on the next one where the comment stands alone."""

    code: str
    reason: str
    span: Span
    line: int
    """The line it speaks of, from 0, in its file."""


@final
@attrs.frozen(kw_only=True)
class Closure:
    """Closure of includes, in the order of reading. Source 0 is the file asked for."""

    sources: tuple[Source, ...]
    paths: tuple[str, ...]
    """Beside `sources`: what to read, and watch, them as."""
    files: tuple[File, ...]
    includes: Mapping[Span, tuple[int, ...]]
    """The span of an `include` statement -> the sources that it brought in."""
    allows: tuple[Allow, ...]
    diagnostics: tuple[Diagnostic, ...]
    unreadable: bool
    """The file asked for, or one it includes, could not be read at all."""
    hash: str
    """Over names and bytes."""


def read_closure(
    path: str, files: Files, progress: ProgressListener = untold, *, allowed: Sequence[str] = ()
) -> Closure:
    """Read and parse a policy with its includes. Every problem is a diagnostic; nothing is raised.

    Args:
        allowed: Folders that may be included from, beside that of the policy.
    """
    folder = posixpath.dirname(posixpath.normpath(path))
    folders = tuple(map(posixpath.normpath, (folder or ".", *allowed)))
    # A policy that is a link, as those of a Kubernetes volume are, may include what lies beside the file itself.
    beside = posixpath.dirname(files.resolve(path)) or "."
    reader = _Reader(files, progress, folders, (*map(files.resolve, folders), posixpath.normpath(beside)))
    reader.read(path, at=None, including=())
    return Closure(
        sources=tuple(reader.sources),
        paths=tuple(reader.paths),
        files=tuple(reader.files),
        includes=reader.includes,
        allows=tuple(reader.allows),
        diagnostics=tuple(reader.diagnostics),
        unreadable=reader.unreadable,
        hash=reader.digest.hexdigest(),
    )


@final
@attrs.define(eq=False)
class _Reader:
    disk: Files
    progress: ProgressListener
    folders: tuple[str, ...]
    """Includes are read from these and below, and from nowhere else."""
    real_folders: tuple[str, ...]
    """The same without links: a link below a folder may lead anywhere."""
    sources: list[Source] = attrs.field(init=False, factory=list)
    paths: list[str] = attrs.field(init=False, factory=list)
    files: list[File] = attrs.field(init=False, factory=list)
    includes: dict[Span, tuple[int, ...]] = attrs.field(init=False, factory=dict)
    allows: list[Allow] = attrs.field(init=False, factory=list)
    diagnostics: list[Diagnostic] = attrs.field(init=False, factory=list)
    unreadable: bool = attrs.field(init=False, default=False)
    digest: hashlib._Hash = attrs.field(init=False, factory=hashlib.sha256)

    def read(self, path: str, at: Span | None, including: tuple[str, ...]) -> None:
        """Take one file in, and then what it includes. A file met twice is taken once.

        Args:
            at: The `include` that asks for it; None for the first file.
            including: The chain of files that led here, for cycles.
        """
        path = posixpath.normpath(path)
        number = len(self.sources)
        try:
            content = self.disk.read(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._unreadable(path, f"cannot read `{path}`: {why}", at)
            return
        # The same policy in another folder, or at another node, has the same hash.
        name = path.removeprefix(f"{self.folders[0]}/") if including else ""
        self.digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
        text, complaint = _decoded(content)
        self.sources.append(Source(path, text))
        self.paths.append(path)
        if complaint:
            self.unreadable = True
            self._error("HM007", f"`{path}` {complaint}", Span(number, 0, 0))
            return
        file, found = parse(text, number, self.progress)
        if at is not None and not _is_policy(file, found, path, text):
            # Its lines are not for whoever reads the diagnostics: it may be anything that this machine holds.
            self.sources[number] = Source(path, "")
            self._error(
                "HM011",
                f"`{path}` is not a policy file, so its text is not shown",
                at,
                help="include files with declarations",
            )
            return
        self.files.append(file)
        self.diagnostics += found
        self._look_for_keys(text, number)
        self._take_allows(text, number)
        for statement in file.statements:
            if isinstance(statement, Item):
                if statement.head.text == "hmp":
                    self._check_version(statement)
                elif statement.head.text == "include":
                    self._include(statement, path, (*including, path))

    def _include(self, statement: Item, path: str, chain: tuple[str, ...]) -> None:
        match statement.args:
            case (String(value=pattern, span=span),) if statement.block is None and statement.when is None:
                pass
            case _:
                return  # the schema says what an `include` looks like
        folder = _WILDCARD.sub(r"[\g<0>]", posixpath.dirname(path))  # a folder's own name is no pattern
        full = posixpath.join(folder, pattern)
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(path), pattern))
        if not self._within(meant):
            self._outside(pattern, meant, span)
            return
        matches = self.disk.glob(full)
        if not matches:
            self._error("HM008", f"no file matches `{pattern}`", span, help="paths are relative to the including file")
        for match in matches:
            name = posixpath.normpath(match)
            real = self.disk.resolve(name)
            if not self._within(name):
                self._outside(name, name, span)
            elif not _is_below(real, self.real_folders):
                self._outside(real, real, span)
            elif name in chain:
                circle = " -> ".join([*chain[chain.index(name) :], name])
                self._error("HM009", "circular include", span, note=circle, help="remove one of the includes")
            elif name in self.paths:
                continue
            elif len(chain) > NESTING_MAX:
                self._error("HM007", f"files include each other more than {NESTING_MAX} deep", span)
            else:
                number = len(self.sources)
                self.read(name, span, chain)
                if len(self.sources) > number:  # otherwise it could not be read, and the number is the next one's
                    self.includes[statement.span] = (*self.includes.get(statement.span, ()), number)

    def _within(self, name: str) -> bool:
        """Return True if a path, which is normalised, is in one of the folders."""
        return _is_below(name, self.folders)

    def _outside(self, name: str, path: str, span: Span) -> None:
        """Report an include that may not be read.

        Args:
            path: As the command line would name it, from the working directory.
        """
        folder = posixpath.dirname(path) or "."
        while folder not in (".", "/") and _WILDCARD.search(folder):
            folder = posixpath.dirname(folder) or "."
        self._error(
            "HM011",
            f"`{name}` is outside the policy's folder",
            span,
            note="a policy written by others could name any file of this machine",
            help=f"move it below the policy, or allow its folder: `hivemind-trio --allow-include {folder} ...`",
        )

    def _check_version(self, statement: Item) -> None:
        match statement.args:
            case (Quantity(text=text, span=span),) if text.isdigit():
                if text != str(LANGUAGE_VERSION):
                    known = f"this version supports `hmp {LANGUAGE_VERSION}`"
                    self._error("HM006", f"unknown language version {text}", span, note=known)
            case _:
                return  # the schema says what `hmp` looks like

    def _look_for_keys(self, text: str, number: int) -> None:
        for start, end, kind in find_keys(text):
            is_quoted = text[start - 1 : start] == '"' == text[end : end + 1]
            self.diagnostics.append(
                Diagnostic(
                    code="HM208",
                    severity=Severity.ERROR,
                    message=f"this looks like {kind}",
                    span=Span(number, start, end),
                    note="a policy is kept in git",
                    help='write `env(NAME)` or `file("path")`, and rotate the key',
                    choices=Fix.choosing(Span(number, start - is_quoted, end + is_quoted), SECRET_PLACES),
                )
            )

    def _take_allows(self, text: str, number: int) -> None:
        for match in _ALLOW.finditer(text):
            begin = text.rfind("\n", 0, match.start()) + 1
            line = self.sources[number].line(match.start())
            alone = not text[begin : match.start()].strip()
            span = Span(number, match.start(), match.end())
            self.allows.append(Allow(match[1], match[2].strip(), span, line + 1 if alone else line))

    def _unreadable(self, path: str, message: str, at: Span | None) -> None:
        self.unreadable = True
        if at is None:
            self.sources.append(Source(path, ""))
            self.paths.append(path)
            at = Span(len(self.sources) - 1, 0, 0)
        self._error("HM007", message, at)

    def _error(self, code: str, message: str, span: Span, *, note: str = "", help: str = "") -> None:  # noqa: A002 - the field's name
        self.diagnostics.append(
            Diagnostic(code=code, severity=Severity.ERROR, message=message, span=span, note=note, help=help)
        )


def _is_policy(file: File, found: Sequence[Diagnostic], path: str, text: str) -> bool:
    """Return True if an included file has a declaration that is known, or nothing that is not."""
    for one in file.statements:
        # An `if` of a shell script is read as a rule, and makes no policy of it.
        written = text[one.head.span.start : one.head.span.end] if isinstance(one, Item) else ""
        if isinstance(one, Let) and not text.startswith("let", one.span.start):  # `NAME=VALUE` of a shell
            continue
        if not isinstance(one, Item) or one.head.text == written in DECLARATIONS:
            return True
    return not found and (not file.statements or path.endswith(".hmp"))


def _decoded(content: bytes) -> tuple[str, str]:
    """Return the text, and a complaint where it is not one."""
    if len(content) > FILE_BYTES_MAX:
        return "", f"is larger than {FILE_BYTES_MAX >> 20} MiB"
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "", "is UTF-16; save it as UTF-8"
    if b"\0" in content:
        return "", "contains a NUL byte; is it a policy?"
    try:
        return content.decode("utf-8-sig"), ""  # a byte order mark is no part of the text
    except UnicodeDecodeError as error:
        return "", f"is not UTF-8 (byte {error.start})"


def suppressed(
    diagnostics: tuple[Diagnostic, ...], closure: Closure, *, analysed: bool = True
) -> tuple[Diagnostic, ...]:
    """Without what an `allow` expects; an allow that nothing came of is HM904. Errors cannot be allowed away.

    Args:
        analysed: False for a policy with errors, in which most of what can be allowed is not looked for.
    """
    used: set[int] = set()
    refused: set[int] = set()
    kept: list[Diagnostic] = []
    allows: dict[tuple[str, int, int], list[int]] = {}
    for number, allow in enumerate(closure.allows):
        allows.setdefault((allow.code, allow.span.source, allow.line), []).append(number)
    for diagnostic in diagnostics:
        line = closure.sources[diagnostic.span.source].line(diagnostic.span.start)
        hits = allows.get((diagnostic.code, diagnostic.span.source, line), ())
        if hits and diagnostic.severity is not Severity.ERROR:
            used.update(hits)
        else:
            refused.update(hits)
            kept.append(diagnostic)
    for number, allow in enumerate(closure.allows):
        sought = analysed and allow.code not in SOUGHT_LATER
        if number not in used and (sought or number in refused):
            kept.append(
                Diagnostic(
                    code="HM904",
                    severity=Severity.WARNING,
                    message=(
                        f"`{allow.code}` is an error, and errors cannot be allowed"
                        if number in refused
                        else f"unused `allow`: no `{allow.code}` here"
                    ),
                    span=allow.span,
                    help="delete the comment",
                    fix=Fix((deletion(closure.sources[allow.span.source].text, allow.span),)),
                )
            )
    return tuple(sorted(kept, key=lambda found: (found.span.source, found.span.start, found.code)))


def _is_below(name: str, folders: tuple[str, ...]) -> bool:
    return any(
        not (name == ".." or name.startswith(("/", "../")))
        if folder == "."
        else name.startswith(folder.rstrip("/") + "/")
        for folder in folders
    )
