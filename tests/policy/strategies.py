"""Conditions as text that is well typed, drawn together with what they mean; and calls that meet them often.

A condition carries its meaning as plain Python, made beside the text and from the same draw, never by reading it. Few
names and few values, so that conditions match, overlap and hide each other, and comparisons stand at their edges.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from hivemind_trio.model import Api, Request
from hivemind_trio.model.dates import weekday_of

AGENTS: Final = ("ci", "reviewer", "notebook", "night-owl")

TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("", "claude-opus-4-1", "claude-haiku-4-5", "gpt-5", "gpt-4.1-mini", "*"),
    "path": ("", "/v1/messages", "/api/embed"),
    "method": ("POST", "GET"),
    "header.x-job": ("", "7", 'a"b\\c', "new\nline"),
    "header.X-Kind": ("", "Urgent", "urgent"),
    "meta.user": ("", "me", "É"),
    "meta.User": ("", "me"),
    "meta.a.b": ("", "deep"),
}
"""Field -> what calls bring there. Header names are of either case in a policy, and lower-case in a call."""

# No two that fit the same models are equally specific, which would be an error (HM113) among the limits of a provider.
GLOBS: Final = ("*", "?pt-*", "gpt-*", "*-mini", "claude-*", "claude-opus-*", "*o*u*-4-?", "claude-haiku-4-5")

COUNTS: Final = {"0": 0, "1": 1, "2": 2, "999": 999, "1k": 1_000, "1.5k": 1_500, "40_000": 40_000, "1M": 1_000_000}
MONEY: Final = {"$0": 0, "$0.10": 100_000, "$1": 1_000_000, "$1.50": 1_500_000, "$4k": 4_000_000_000}
SHARES: Final = {"0%": 0, "0.5": 500_000, "80.5%": 805_000, "90%": 900_000, "100%": 1_000_000}
PLANS: Final = ("plan.session", "plan.week", "plan.month")
AGES: Final = {"0s": 0, "1ms": 10**6, "90s": 90 * 10**9, "1h30m": 5_400 * 10**9, "2d": 172_800 * 10**9}
SESSIONS: Final = ("session.context", "session.turns", "session.cost", "session.age")
TIMES: Final = {"00:00": 0, "8:05": 485, "22:30": 1_350, "23:59": 1_439}
DATES: Final = ("2001-01-08", "2026-12-25", "2026-12-26", "2027-02-28", "2028-02-29", "2099-12-31", "2000-01-01")
DATE_GLOBS: Final = ("*-12-25", "20??-02-*", "2026-*", "*", "2028-02-29", "*-0?-*1", "20*")
CYCLIC: Final = ("time", "hour", "weekday")
MOST: Final = {"hour": 23, "weekday": 7, "time": 1_439, **dict.fromkeys(PLANS, 1_000_000)}
NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {
    **dict.fromkeys(("tokens.in", "tokens.max-out", "tokens.total"), COUNTS),
    "attempt": {"1": 1, "2": 2, "5": 5},
    "hour": {"0": 0, "5": 5, "22": 22, "23": 23},
    "weekday": {"1": 1, "6": 6, "7": 7},
    "time": TIMES,
    "cost": MONEY,
    **dict.fromkeys(PLANS, SHARES),
    "session.context": {"1": 1, "999": 999, "150k": 150_000},
    "session.turns": {"0": 0, "1": 1, "400": 400},
    "session.cost": MONEY,
    "session.age": AGES,
}
_V4: Final = 0xFFFF_0000_0000
ADDRESSES: Final = (_V4 | 0x7F00_0001, _V4 | 0x0A00_0001, _V4 | 0x0AFF_FFFF, _V4 | 0x0B00_0000, 1)
NETWORKS: Final[Mapping[str, tuple[int, int]]] = {
    "127.0.0.1": (_V4 | 0x7F00_0001, _V4 | 0x7F00_0001),
    "10.0.0.0/8": (_V4 | 0x0A00_0000, _V4 | 0x0AFF_FFFF),
    "10.0.0.1": (_V4 | 0x0A00_0001, _V4 | 0x0A00_0001),
    "::1": (1, 1),
    "::/0": (0, 2**128 - 1),
}
FLAGS: Final = ("stream", "tools", "images")

RELATIONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@attrs.frozen
class Call:
    """A request, and what was found out about it before a rule is asked."""

    request: Request
    agent: str = "unknown"
    team: str = "none"
    provider: str | None = None

    def read(self, field: str) -> Any:
        """The value of a field of the language."""
        request, (family, _, rest) = self.request, field.partition(".")
        if family in ("header", "meta"):
            return request.headers.get(rest.lower(), "") if family == "header" else request.meta.get(rest, "")
        if field in ("agent", "team", "provider"):
            return getattr(self, field) or ""
        if field == "tokens.total":
            return request.tokens_in + request.tokens_max_out
        names = {"tokens.max-out": "tokens_max_out", "cost": "cost_microusd"}
        return getattr(request, names.get(field, field.replace(".", "_")))


@attrs.frozen
class Meant:
    """A condition, as text and as what it means."""

    text: str
    means: Callable[[Call], bool] = attrs.field(repr=False)
    strength: int = 3
    """How tightly it holds together: 0 `or`, 1 `and`, 2 `not`, 3 a test or brackets."""

    def within(self, strength: int) -> str:
        """The text, in brackets where it would fall apart."""
        return self.text if self.strength >= strength else f"({self.text})"


@attrs.frozen
class Scope:
    """What an expression may name."""

    names: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """`agent`, `team` and `provider`, where they are known -> their values."""
    globs: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """`let` -> a list of globs."""
    counts: Mapping[str, int] = attrs.field(factory=dict)
    """`let` -> a count."""
    conditions: Mapping[str, Meant] = attrs.field(factory=dict)
    """`let` -> a condition."""


def quoted(text: str) -> str:
    """A text as the language writes it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def fits(glob: str, text: str) -> bool:
    """Whether the whole text is what the glob says; letter by letter, and slow."""
    if not glob:
        return not text
    if glob[0] == "*":
        return fits(glob[1:], text) or (bool(text) and fits(glob, text[1:]))
    return bool(text) and glob[0] in ("?", text[0]) and fits(glob[1:], text[1:])


# ---- conditions ----


def _flag(draw: st.DrawFn, scope: Scope) -> Meant:
    field = draw(st.sampled_from((*FLAGS, "plan.overage") if scope.names else FLAGS))
    ending, wanted = draw(st.sampled_from([("", True), (" == true", True), (" != true", False), (" == false", False)]))
    return Meant(field + ending, lambda call: call.read(field) is wanted)


def _relation(field: str, op: str, text: str, value: Any) -> Meant:
    return Meant(f"{field} {op} {text}", lambda call: RELATIONS[op](call.read(field), value))


def _member(draw: st.DrawFn, field: str, items: list[tuple[str, Callable[[Any], bool]]]) -> Meant:
    """`in` or `not in`; one item needs no list."""
    text = ", ".join(text for text, _ in items)
    text = text if len(items) == 1 and draw(st.booleans()) else f"[{text}]"
    negated = draw(st.booleans())
    return Meant(
        f"{field} {'not ' * negated}in {text}",
        lambda call: any(has(call.read(field)) for _, has in items) is not negated,
    )


def _is(value: Any) -> Callable[[Any], bool]:
    return lambda given: bool(given == value)


def _within(low: int, high: int) -> Callable[[Any], bool]:
    if low > high:
        return lambda given: given >= low or given <= high
    return lambda given: low <= given <= high


def _name(draw: st.DrawFn, scope: Scope) -> Meant:
    field, values = draw(st.sampled_from(sorted(scope.names.items())))
    if draw(st.booleans()):
        op, value = draw(st.sampled_from(["==", "!="])), draw(st.sampled_from(values))
        return _relation(field, op, value, value)
    return _member(draw, field, [(value, _is(value)) for value in draw(st.lists(st.sampled_from(values), max_size=3))])


def _text(draw: st.DrawFn, scope: Scope) -> Meant:
    field = draw(st.sampled_from(sorted(TEXTS)))
    match draw(st.integers(0, 3)):
        case 0:
            value = draw(st.sampled_from(TEXTS[field]))
            return _relation(field, draw(st.sampled_from(["==", "!="])), quoted(value), value)
        case 1:
            values = draw(st.lists(st.sampled_from(TEXTS[field]), max_size=3))
            return _member(draw, field, [(quoted(value), _is(value)) for value in values])
        case 2 if scope.globs:
            name, globs = draw(st.sampled_from(sorted(scope.globs.items())))
            text = draw(st.sampled_from([name, f'["nothing", {name}]']))
        case _:
            globs = tuple(draw(st.lists(st.sampled_from([*GLOBS, "", "?", "*e", "/*/*"]), max_size=3)))
            text = quoted(globs[0]) if len(globs) == 1 else f"[{', '.join(map(quoted, globs))}]"
    return Meant(f"{field} ~ {text}", lambda call: any(fits(glob, call.read(field)) for glob in globs))


def _number(draw: st.DrawFn, scope: Scope) -> Meant:
    # Whose plan and session it is follows from who calls.
    field = draw(st.sampled_from([one for one in sorted(NUMBERS) if scope.names or one not in (*PLANS, *SESSIONS)]))
    known = list(NUMBERS[field].items())
    if NUMBERS[field] is COUNTS:
        known += scope.counts.items()
    if draw(st.integers(0, 2)):
        text, value = draw(st.sampled_from(known))
        return _relation(field, draw(st.sampled_from(sorted(RELATIONS))), text, value)
    items: list[tuple[str, Callable[[Any], bool]]] = []
    for text, value in draw(st.lists(st.sampled_from(list(NUMBERS[field].items())), max_size=3)):
        to, high = draw(st.sampled_from(list(NUMBERS[field].items())))
        goes = value != high if field in CYCLIC else value < high
        items.append((f"{text}..{to}", _within(value, high)) if goes else (text, _is(value)))
    return _member(draw, field, items)


def _date(draw: st.DrawFn) -> Meant:
    match draw(st.integers(0, 2)):
        case 0:
            value = draw(st.sampled_from(DATES))
            return _relation("date", draw(st.sampled_from(["==", "!="])), quoted(value), value)
        case 1:
            values = draw(st.lists(st.sampled_from(DATES), max_size=3))
            return _member(draw, "date", [(quoted(value), _is(value)) for value in values])
        case _:
            globs = tuple(draw(st.lists(st.sampled_from(DATE_GLOBS), max_size=3)))
            text = quoted(globs[0]) if len(globs) == 1 else f"[{', '.join(map(quoted, globs))}]"
            return Meant(f"date ~ {text}", lambda call: any(fits(glob, call.read("date")) for glob in globs))


def _address(draw: st.DrawFn) -> Meant:
    texts = draw(st.lists(st.sampled_from(sorted(NETWORKS)), max_size=3))
    if len(texts) == 1:
        op = draw(st.sampled_from(["==", "!="]))
        low, high = NETWORKS[texts[0]]
        is_in = op == "=="
        return Meant(
            f"client.address {op} {quoted(texts[0])}",
            lambda call: (low <= call.request.client_address <= high) is is_in,
        )
    return _member(draw, "client.address", [(quoted(text), _within(*NETWORKS[text])) for text in texts])


@st.composite
def _atoms(draw: st.DrawFn, scope: Scope) -> Meant:
    match draw(st.integers(0, 11)):
        case 11:
            return _address(draw)
        case 10:
            return _date(draw)
        case 0 | 1:
            return _flag(draw, scope)
        case 2 | 3 if scope.names:
            return _name(draw, scope)
        case 4 if scope.conditions:
            name, meant = draw(st.sampled_from(sorted(scope.conditions.items())))
            return Meant(name, meant.means)
        case 2 | 3 | 4 | 5 | 6:
            return _text(draw, scope)
        case _:
            return _number(draw, scope)


def _joined(draw: st.DrawFn, word: str, strength: int, items: list[Meant]) -> Meant:
    text = items[0].within(strength + 1)
    for item in items[1:]:
        before, after = draw(st.sampled_from([(" ", " "), (" ", " "), ("\n  ", " "), (" ", "\n  ")]))
        text += f"{before}{word}{after}{item.within(strength + 1)}"
    every = all if word == "and" else any
    return Meant(text, lambda call: every(item.means(call) for item in items), strength)


@st.composite
def conditions(draw: st.DrawFn, scope: Scope, depth: int = 2) -> Meant:
    """A condition with no more brackets than it needs, but for a few."""
    smaller = conditions(scope, depth - 1)
    match draw(st.integers(0, 7)) if depth else 7:
        case 0:
            item = draw(smaller)
            return Meant(f"not {item.within(2)}", lambda call: not item.means(call), 2)
        case 1 | 2:
            return _joined(draw, "and", 1, draw(st.lists(smaller, min_size=2, max_size=3)))
        case 3 | 4:
            return _joined(draw, "or", 0, draw(st.lists(smaller, min_size=2, max_size=3)))
        case 5:
            item = draw(smaller)
            return Meant(f"({item.text})", item.means)
        case _:
            return draw(_atoms(scope))


# ---- calls ----


@st.composite
def requests(draw: st.DrawFn, tokens: Iterable[str] = ()) -> Request:
    """A call; its numbers are those of the policies, or stand beside them.

    Args:
        tokens: Agents that have one, and may prove themselves.
    """

    def number(field: str) -> int:
        value = draw(st.sampled_from(sorted(NUMBERS[field].values()))) + draw(st.sampled_from([0, 0, 1, -1]))
        return min(
            max(value, 1 if field in ("attempt", "weekday") else 0),
            MOST.get(field, value),
        )

    time, date = number("time") if draw(st.booleans()) else number("hour") * 60, draw(st.sampled_from(DATES))
    headers: dict[str, str] = {}
    meta: dict[str, str] = {}
    for field, values in TEXTS.items():
        family, _, name = field.partition(".")
        if family in ("header", "meta") and draw(st.booleans()):
            (headers if family == "header" else meta)[name.lower() if family == "header" else name] = draw(
                st.sampled_from(values)
            )
    models = st.sampled_from(TEXTS["model"]) | st.text("gpt-o4*", max_size=6)
    flags: dict[str, Any] = {flag: draw(st.booleans()) for flag in FLAGS}
    return Request(
        apis=tuple(draw(st.lists(st.sampled_from([Api.ANTHROPIC, Api.OPENAI, Api.GEMINI]), unique=True, max_size=2))),
        token_agent=draw(st.sampled_from([None, *tokens])),
        claimed=draw(st.sampled_from([None, None, "nobody", "unknown", *AGENTS])),
        model=draw(models),
        path=draw(st.sampled_from(TEXTS["path"])),
        method=draw(st.sampled_from(TEXTS["method"])),
        **flags,
        tokens_in=number("tokens.in"),
        tokens_max_out=number("tokens.max-out"),
        cost_microusd=number("cost"),
        attempt=number("attempt"),
        hour=time // 60,
        minute=time % 60,
        weekday=weekday_of(date),
        date=date,
        client_address=draw(st.sampled_from(sorted(ADDRESSES))),
        plan_session=number("plan.session"),
        plan_week=number("plan.week"),
        plan_month=number("plan.month"),
        plan_overage=draw(st.booleans()),
        session_context=number("session.context"),
        session_turns=number("session.turns"),
        session_cost=number("session.cost"),
        session_age=number("session.age"),
        headers=headers,
        meta=meta,
    )
