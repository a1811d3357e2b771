"""Policies in any layout: words of every shape the grammar has, and between them whatever white space may stand there.

What the words mean is left open: most such texts are full of errors, and none of them is a syntax error.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hivemind_trio.policy.source.span import Span

COMMENTS = st.sampled_from(["#", "# why", "#why  ", "# hmp: allow HM190 yes", '# "', "# { ; [", "# ünï 界\t"])
INLINE = st.sampled_from([" ", "  ", "\t", " \t "])
NEWLINES = st.sampled_from(["\n", "\n", "\n\n", "\n\n\n\n", "\n  ", "  \n\t"])


@st.composite
def _breaks(draw: st.DrawFn) -> str:
    """Where a newline may stand: some, with comments at their ends or on lines of their own."""
    parts = [draw(INLINE) + draw(COMMENTS) if draw(st.booleans()) else "", draw(NEWLINES)]
    for _ in range(draw(st.integers(0, 2))):
        parts += [draw(COMMENTS), draw(NEWLINES)]
    return "".join(parts)


BREAKS = _breaks()
MAYBE = st.one_of(st.just(""), INLINE)
WITHIN = st.one_of(st.just(""), INLINE, BREAKS)
"""Inside brackets, and at other places where a newline separates nothing, between words that need no space."""
AFTER = st.one_of(INLINE, BREAKS)
SEPARATORS = st.one_of(BREAKS, st.sampled_from([";", "; ", " ;", ";\n", " ; # and\n", "\n;\n"]))

NAMES = st.sampled_from(["anthropic", "concurrency", "tokens.in", "x", "header.x-ci", "on", "whenever", "lane_2"])
STRINGS = st.sampled_from(['""', '"claude-*"', '"a b  c"', '"# no comment"', '"{"', '"\\"\\\\\\n"', '"é界"'])
QUANTITIES = st.sampled_from(["4", "40k", "1h30m", "$0.80", "50%", "40_000", "10MiB"])
CLOCKS = st.sampled_from(["22:00", "5:30"])


@st.composite
def _rates(draw: st.DrawFn) -> str:
    per = draw(st.sampled_from(["min", "10m", "Mtok"]))
    return f"{draw(QUANTITIES)}{draw(WITHIN)}/{draw(WITHIN)}{per}"


@st.composite
def _ranges(draw: st.DrawFn) -> str:
    low, high = draw(QUANTITIES), draw(QUANTITIES)
    return f"{low}{draw(WITHIN)}..{draw(WITHIN)}{high}"


@st.composite
def _lists(draw: st.DrawFn, opener: str = "[") -> str:
    items = draw(st.lists(st.one_of(NAMES, STRINGS, QUANTITIES, _ranges()), max_size=4))
    text = opener + draw(WITHIN)
    for number, item in enumerate(items):
        last = number == len(items) - 1
        text += item + draw(WITHIN) + ("" if last and draw(st.booleans()) else "," + draw(WITHIN))
    return text + ("]" if opener == "[" else ")")


@st.composite
def _calls(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(["env", "file"])) + draw(MAYBE) + draw(_lists(opener="("))


VALUES = st.one_of(NAMES, STRINGS, QUANTITIES, CLOCKS, _rates(), _ranges(), _lists(), _calls())


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    """An expression with its brackets, broken over lines where it may be."""
    if depth == 0:
        return draw(st.sampled_from(["stream", "tools"]))
    smaller = conditions(depth - 1)
    match draw(st.integers(0, 5)):
        case 0:
            return f"not{draw(AFTER)}{draw(smaller)}"
        case 1:
            return f"({draw(WITHIN)}{draw(smaller)}{draw(WITHIN)})"
        case 2:
            word = draw(st.sampled_from(["and", "or"]))
            return f"({draw(smaller)}{draw(AFTER)}{word}{draw(AFTER)}{draw(smaller)})"
        case 3:
            return f"agent{draw(AFTER)}in{draw(AFTER)}{draw(_lists())}"
        case _:
            sign = draw(st.sampled_from(["==", "!=", "<", "~"]))
            value = draw(st.one_of(NAMES, STRINGS, QUANTITIES))
            return f"{draw(NAMES)}{draw(AFTER)}{sign}{draw(WITHIN)}{value}"


@st.composite
def statements(draw: st.DrawFn, depth: int) -> str:
    """An item, a `let` or an `expect`."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return f"let {draw(NAMES)}{draw(MAYBE)}={draw(WITHIN)}{draw(st.one_of(VALUES, conditions()))}"
    if kind == 1:
        return f"expect{draw(INLINE)}{draw(conditions())}"
    text = draw(NAMES)
    for value in draw(st.lists(VALUES, max_size=3)):
        text += draw(INLINE) + value
    if draw(st.integers(0, 3)) == 0:
        text += draw(AFTER) + "when" + draw(AFTER) + draw(conditions())
    if depth and draw(st.booleans()):
        text += draw(WITHIN) + draw(blocks(depth - 1))
    return text


@st.composite
def blocks(draw: st.DrawFn, depth: int) -> str:
    """`{ ... }`."""
    inner = draw(bodies(depth))
    return "{" + draw(WITHIN) + inner + draw(WITHIN if inner else st.one_of(st.just(""), INLINE, BREAKS)) + "}"


@st.composite
def bodies(draw: st.DrawFn, depth: int = 2) -> str:
    """Statements with what separates them."""
    text = ""
    for number, statement in enumerate(draw(st.lists(statements(depth), max_size=4))):
        text += (draw(SEPARATORS) if number else "") + statement
    return text


@st.composite
def policies(draw: st.DrawFn) -> str:
    """A whole file, with or without an end to its last line, its lines ended by either habit."""
    text = draw(WITHIN) + draw(bodies()) + draw(WITHIN)
    return text.replace("\n", "\r\n") if draw(st.integers(0, 5)) == 0 else text


def bare(tree: Any) -> Any:
    """A tree without its places, to be compared."""
    if isinstance(tree, (tuple, list)):
        return tuple(bare(item) for item in tree)
    if hasattr(tree, "__attrs_attrs__"):
        fields = (getattr(tree, field.name) for field in tree.__attrs_attrs__)
        return type(tree).__name__, tuple(bare(value) for value in fields if not isinstance(value, Span))
    return tree
