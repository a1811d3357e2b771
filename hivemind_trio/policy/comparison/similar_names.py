"""Similar names: removed and added declarations that may be one under another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from hivemind_trio.policy.diagnostics.suggest import suggestion

UNTOLD: Final = ("name", "at", "was")
"""Fields that say nothing of what a declaration is."""

ALIKE: Final = 0.75
"""Fields that must be equal where names are alike. Most are defaults in most policies."""


def likenesses(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Name of something new -> what it looks like, which is no more. Only where nothing else comes into question.

    Two things are alike if all that they say is the same, or most of it and their names are alike too.
    """
    gone = {name: one for name, one in before.items() if name not in after}
    new = {name: one for name, one in after.items() if name not in before}
    pairs = [(old, name) for old, one in gone.items() for name, other in new.items() if _alike(old, one, name, other)]
    return {
        name: old
        for old, name in pairs
        if sum(one == old for one, _ in pairs) == 1 and sum(other == name for _, other in pairs) == 1
    }


def _alike(old: str, one: Any, name: str, other: Any) -> bool:
    fields = [field.name for field in attrs.fields(type(one)) if field.name not in UNTOLD]
    # The words with which a budget refuses name it.
    same = sum(
        repr(getattr(one, field)).replace(f"`{old}`", f"`{name}`") == repr(getattr(other, field)) for field in fields
    )
    if same == len(fields):
        return True
    return same >= ALIKE * len(fields) and suggestion(name, [old]) is not None
