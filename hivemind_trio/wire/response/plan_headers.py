"""Plan headers: the used share of windows of hours and days. Total: any headers have an answer.

After the header names in Claude Code 2.1.197 and in codex-rs (November 2026). The names are in the dialects.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, final

import attrs

from hivemind_trio.dialects import IN_ORDER, PlanHeaders, PlanPart
from hivemind_trio.model import PlanReading, PlanWindow
from hivemind_trio.model.plan import WHOLE

from .retry_after import SECOND_NS, since_1970_s

NAMES_MAX: Final = 256
"""Names of headers whose reading is kept: a provider sends a dozen, in every answer."""

WINDOWS_MAX: Final = 16
"""Windows of one answer that are read."""

LONGEST_S: Final = 400 * 86_400
"""A longer window, or a reset that is farther away, is a mistake of somebody's."""

_FORMATS: Final = tuple(
    (re.compile(plan.pattern), plan) for plan in dict.fromkeys(d.limits.plan for d in IN_ORDER) if plan is not None
)
_UNIT_S: Final = {"h": 3_600, "d": 86_400}
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")


@final
@attrs.frozen
class _PlanHeader:
    """Name of a header, taken apart."""

    plan: PlanHeaders
    scope: str
    window: str
    """Empty: it is about all windows of the scope."""
    part: PlanPart


def read_plan(headers: Mapping[str, str]) -> PlanReading | None:
    """Return what an answer's head says of the plan, good or bad; None: nothing.

    Args:
        headers: Lower-case names; of repeated ones the first.
    """
    told: dict[tuple[int, str, str], dict[PlanPart, str]] = defaultdict(dict)
    plans: dict[int, PlanHeaders] = {}
    for name, text in headers.items():
        header = _plan_header(name)
        if header is not None:
            plans[id(header.plan)] = header.plan
            told[id(header.plan), header.scope, header.window][header.part] = text.strip()
    windows: list[PlanWindow] = []
    overage = False
    for key, plan in plans.items():
        read = [
            window
            for (owner, scope, word), parts in told.items()
            if owner == key and word
            if (window := _window(plan, scope, word, parts, told.get((key, scope, ""), {}), headers)) is not None
        ]
        windows += read
        is_full = any(window.used >= WHOLE and not window.models for window in read)
        overage |= _is_any(plan.overage, headers) or (is_full and _is_any(plan.credit, headers))
    return PlanReading(windows=tuple(windows[:WINDOWS_MAX]), overage=overage) if windows else None


@lru_cache(maxsize=NAMES_MAX)
def _plan_header(name: str) -> _PlanHeader | None:
    """Return what a header tells of which window; None: it is of another kind."""
    for pattern, plan in _FORMATS:
        match = pattern.fullmatch(name)
        if match is not None:
            return _PlanHeader(plan, match["scope"] or "", match["window"] or "", plan.parts[match["part"]])
    return None


def _window(
    plan: PlanHeaders,
    scope: str,
    word: str,
    parts: Mapping[PlanPart, str],
    of_scope: Mapping[PlanPart, str],
    headers: Mapping[str, str],
) -> PlanWindow | None:
    """Return one window; None: its use is not told, or nobody knows which calls it counts."""
    share = _number(parts.get(PlanPart.USED))
    if parts.get(PlanPart.STATUS, "").lower() == "rejected":
        share = float(plan.whole)
    if share is None:
        return None
    models = ""
    if scope not in plan.every_model:
        models = of_scope.get(PlanPart.MODELS, "" if plan.named_scopes else scope).lower()
        if not models:
            return None
    minutes = _number(parts.get(PlanPart.MINUTES))
    length_s = minutes * 60 if minutes else plan.lengths.get(word) or int(word[:-1]) * _UNIT_S[word[-1]]
    return PlanWindow(
        name=f"{word}_{scope}" if scope else word,
        used=min(WHOLE, round(share * WHOLE / plan.whole)),
        window_ns=round(min(length_s, LONGEST_S)) * SECOND_NS,
        resets_ns=_resets_ns(parts, headers),
        models=models,
    )


def _resets_ns(parts: Mapping[PlanPart, str], headers: Mapping[str, str]) -> int | None:
    """Return the time until a window begins anew, by the answer's own clock; None: not told."""
    at_s, in_s = _number(parts.get(PlanPart.RESETS_AT)), _number(parts.get(PlanPart.RESETS_IN))
    if at_s is not None:
        now_s = since_1970_s(headers.get("date", ""))
        in_s = max(0.0, at_s - now_s) if now_s is not None else in_s
    return None if in_s is None else round(min(in_s, LONGEST_S) * SECOND_NS)


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def _is_any(names: tuple[str, ...], headers: Mapping[str, str]) -> bool:
    return any(headers.get(name, "").strip().lower() == "true" for name in names)
