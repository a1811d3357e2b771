"""Findings as text: carets for people, one line each for editors. `machine_formats.py` has the forms for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, final

import attrs

from hivemind_trio.policy.source.lines import Lines, readable
from hivemind_trio.policy.source.secret_scan import masked
from hivemind_trio.policy.source.source_text import Source
from hivemind_trio.policy.source.span import Span

from .diagnostic import Diagnostic, Severity
from .machine_formats import github, json_report, sarif
from .terminal import visible, width

FORMATS: Final = ("text", "short", "json", "sarif", "github")

LINE_SHOWN_MAX: Final = 160
"""Code points of a line that are shown; of a longer one, the piece around the span."""

_RED, _YELLOW, _CYAN, _BLUE, _BOLD, _PLAIN = (
    "\x1b[31;1m",
    "\x1b[33;1m",
    "\x1b[36;1m",
    "\x1b[34;1m",
    "\x1b[1m",
    "\x1b[0m",
)
_HUES: Final = {Severity.ERROR: _RED, Severity.WARNING: _YELLOW, Severity.INFO: _CYAN}


class Findings(Protocol):
    """Findings that can be rendered: a checked policy, or anything with one's findings."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources that the spans point into."""
        ...

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """In the order of the text."""
        ...


def render(findings: Iterable[Findings], format_: str, *, color: bool = False) -> str:
    """Every finding in one of `FORMATS`, each once, though two policies include the file that it is in.

    Args:
        color: Use ANSI colours; of `text` and `short` only.

    Returns:
        Lines, the last one ended. Keys in the text are hidden, and control characters shown as pictures of themselves.
    """
    several = list(findings)
    shown = _each_once(several)
    match format_:
        case "text":
            return _text(several, shown, color=color)
        case "short":
            return "".join(_short(diagnostic, lines, color) + "\n" for diagnostic, lines in shown)
        case "json":
            return json_report([readable(one.sources[0].name) for one in several], shown)
        case "sarif":
            return sarif(shown)
        case "github":
            return github(shown)
        case _:
            raise ValueError(f"no format {format_!r}; there are {', '.join(FORMATS)}")


Shown = tuple[Diagnostic, Sequence[Lines]]
"""A finding, and the sources that its spans count in."""


def hidden_text(findings: Findings, number: int) -> str:
    """Return the text of a source with its keys hidden, as long as it was."""
    secrets = [one.span for one in findings.diagnostics if one.code == "HM208" and one.span.source == number]
    return Lines.of(findings.sources[number], secrets).text


def _each_once(several: Sequence[Findings]) -> list[Shown]:
    seen: set[tuple[str, str, int, int, str]] = set()
    shown: list[Shown] = []
    for one in several:
        secrets = [found.span for found in one.diagnostics if found.code == "HM208"]
        lines = [
            Lines.of(source, [span for span in secrets if span.source == number])
            for number, source in enumerate(one.sources)
        ]
        for found in one.diagnostics:
            key = (found.code, lines[found.span.source].name, found.span.start, found.span.end, found.message)
            if key not in seen:
                seen.add(key)
                shown.append((_hidden(found), lines))
    return shown


def _hidden(found: Diagnostic) -> Diagnostic:
    """Without the keys that a message may have quoted."""
    return attrs.evolve(
        found,
        message=masked(found.message),
        note=masked(found.note),
        help=masked(found.help),
        labels=tuple(attrs.evolve(label, text=masked(label.text)) for label in found.labels),
        fix=None
        if found.fix is None
        else attrs.evolve(
            found.fix, edits=tuple(attrs.evolve(edit, text=masked(edit.text)) for edit in found.fix.edits)
        ),
    )


def _text(several: Sequence[Findings], shown: Sequence[Shown], *, color: bool) -> str:
    blocks = [_block(diagnostic, lines, _Paint(color)) for diagnostic, lines in shown]
    blocks.append(_summary([one.sources[0].name for one in several], [found for found, _ in shown]))
    return "\n\n".join(blocks) + "\n"


def _summary(names: Sequence[str], found: Sequence[Diagnostic]) -> str:
    what = visible(names[0]) if len(names) == 1 else f"{len(names)} policies"
    counts = []
    for severity, word in ((Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "note")):
        number = sum(one.severity is severity for one in found)
        if number:
            counts.append(f"{number} {word}{'s' if number > 1 else ''}")
    return f"{what}: {', '.join(counts) or 'no problems'}"


def _short(found: Diagnostic, lines: Sequence[Lines], color: bool) -> str:
    at = lines[found.span.source].position(found.span.start)
    head = _Paint(color)(_HUES[found.severity], f"{found.severity}[{found.code}]")
    place = f"{visible(lines[found.span.source].name)}:{at.line}:{at.column}"
    return f"{place}: {head}: {visible(found.message)}" + (f" ({visible(found.help)})" if found.help else "")


@final
@attrs.frozen
class _Paint:
    color: bool

    def __call__(self, hue: str, text: str) -> str:
        return f"{hue}{text}{_PLAIN}" if self.color and text else text


@final
@attrs.frozen
class _Mark:
    """A span to be underlined, and what is said beside it."""

    span: Span
    sign: str
    text: str
    hue: str


def _block(found: Diagnostic, lines: Sequence[Lines], paint: _Paint) -> str:
    hue = _HUES[found.severity]
    main = _Mark(found.span, "^", found.note, hue)
    marks = [main, *(_Mark(label.span, "-", label.text, _BLUE) for label in found.labels)]
    gutter = max(len(str(lines[mark.span.source].position(mark.span.start).line)) for mark in marks)

    out = [paint(hue, f"{found.severity}[{found.code}]") + paint(_BOLD, f": {visible(found.message)}")]
    # The file of the finding first, then those that a label points into.
    for number, source in enumerate(dict.fromkeys(mark.span.source for mark in marks)):
        here = [mark for mark in marks if mark.span.source == source]
        at = lines[source].position(here[0].span.start)
        arrow = "-->" if number == 0 else ":::"
        out.append(f"{' ' * gutter}{paint(_BLUE, arrow)} {visible(lines[source].name)}:{at.line}:{at.column}")
        out += _excerpt(lines[source], here, gutter, paint)
    if found.help:
        out.append(f"{' ' * gutter} {paint(_BLUE, '=')} {paint(_BOLD, 'help')}: {visible(found.help)}")
    return "\n".join(out)


def _excerpt(lines: Lines, marks: Sequence[_Mark], gutter: int, paint: _Paint) -> list[str]:
    if not lines.text:
        return []  # nothing could be read, so there is nothing to show
    edge = paint(_BLUE, f"{' ' * gutter} |")
    out = [edge]
    by_line: dict[int, list[_Mark]] = {}
    for mark in marks:
        by_line.setdefault(lines.position(mark.span.start).line, []).append(mark)
    previous = 0
    for number in sorted(by_line):
        if previous and number > previous + 1:
            out.append(paint(_BLUE, "..."))
        text = lines.line(number)
        on_line = by_line[number]
        # The file's own line is shown around what is wrong in it; a label further off points at where it is cut.
        around = lines.position(on_line[0].span.start).column - 1
        begin = max(0, around - LINE_SHOWN_MAX // 2) if len(text) > LINE_SHOWN_MAX else 0
        piece = text[begin : begin + LINE_SHOWN_MAX]
        before, after = "…" if begin else "", "…" if begin + LINE_SHOWN_MAX < len(text) else ""
        shown = f"{before}{visible(piece)}{after}"
        out.append(f"{paint(_BLUE, f'{number:>{gutter}} |')} {shown}".rstrip())
        for mark in sorted(on_line, key=lambda one: one.sign != "^"):
            column = lines.position(mark.span.start).column - 1
            end = min(column + mark.span.end - mark.span.start, len(text))
            start = min(max(column, begin), begin + LINE_SHOWN_MAX)
            pad = len(before) + width(text[begin:start])
            # A span of nothing, or at the end of the line, still gets its caret; one over several lines ends with this.
            length = max(1, width(text[start : min(end, begin + LINE_SHOWN_MAX)]))
            out.append(f"{edge} {' ' * pad}{paint(mark.hue, f'{mark.sign * length} {visible(mark.text)}'.rstrip())}")
        previous = number
    return out
