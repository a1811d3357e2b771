"""Division of a pool's slots among nodes: in proportion to the calls that they have, in whole slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from .share_row import ShareRow

THOUSANDTHS: Final = 1_000

OWED_MAX: Final = 2 * THOUSANDTHS
"""Memory of what rounding has withheld: two slots for a second."""


@final
@attrs.frozen(kw_only=True)
class FairShare:
    """Part of one node."""

    whole: int
    """In slots."""
    exact: int
    """Before it was rounded, in thousandths of slots."""


def fair_shares(cap: int, rows: Mapping[str, ShareRow]) -> dict[str, FairShare]:
    """Return what each node is due. The same rows give the same answer at every node.

    Where calls wait, slots go by the number of calls at each node, as one queue would serve them. Half of what nobody
    wants is lent in advance, by use; the other half stays in the store, one request away. A node that is marked as
    missing keeps what it has.
    """
    missing = {name: row for name, row in rows.items() if row.suspect_ms is not None}
    left = max(0, cap - sum(row.occupied for row in missing.values()))
    there = {name: row for name, row in rows.items() if name not in missing}
    if not there:
        return {}
    wanted = sum(row.demand for row in there.values())
    exact = {}
    if wanted > left:
        for name, row in there.items():
            exact[name] = THOUSANDTHS * left * row.demand // wanted
        slots = left
    else:
        lent = (left - wanted) // 2
        for name, row in there.items():
            part = THOUSANDTHS * lent * row.demand // wanted if wanted else THOUSANDTHS * lent // len(there)
            exact[name] = THOUSANDTHS * row.demand + part
        slots = wanted + lent
    whole = {name: part // THOUSANDTHS for name, part in exact.items()}

    def claim(name: str) -> tuple[int, int, str]:
        return -(exact[name] % THOUSANDTHS + there[name].owed), -there[name].share, name

    # Only who has calls to start or a fraction of a lent slot is owed one; the sum of fractions is below their number.
    fractions = sorted((name for name in there if exact[name] % THOUSANDTHS), key=claim)
    for name in fractions[: slots - sum(whole.values())]:
        whole[name] += 1
    return {name: FairShare(whole=whole[name], exact=exact[name]) for name in there}


def owed_after(owed: int, due: FairShare, has: int, elapsed_ms: int) -> int:
    """Return what rounding owes a node after some time with `has` slots, in thousandths of a slot for a second."""
    withheld = (due.exact - has * THOUSANDTHS) * elapsed_ms // 1_000
    return max(-OWED_MAX, min(OWED_MAX, owed + withheld))
