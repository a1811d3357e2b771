"""Plans of accounts in words, for `usage` and `explain CALL`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hivemind_trio.store import PlanRow


def plan_text(rows: Sequence[PlanRow], at_ns: int | None = None) -> str:
    """Return the windows of one account's plan: `session 93% resets 22:13; week 61% resets 11-27 09:00`.

    Args:
        at_ns: On the wall clock. A window that has begun anew by then is said to have. None: now.
    """
    moment_ns = time.time_ns() if at_ns is None else at_ns
    texts = [_window(row, moment_ns) for row in rows]
    return "; ".join([*texts, *(["paying beyond the plan"] if any(row.overage for row in rows) else [])])


def _window(row: PlanRow, at_ns: int) -> str:
    models = f" ({row.models})" if row.models else ""
    used = f"{row.span}{models} {int(row.used * 100 + 1e-6)}%"
    if row.resets_wall_ns is None:
        return used
    resets, now = (datetime.fromtimestamp(each / 1e9).astimezone() for each in (row.resets_wall_ns, at_ns))
    shown = f"{resets:%H:%M}" if resets.date() == now.date() else f"{resets:%m-%d %H:%M}"
    return f"{used}, began anew {shown}" if row.resets_wall_ns <= at_ns else f"{used} resets {shown}"


def credential_text(account: str) -> str:
    """Return whose plan it is behind its provider; nothing for that of the provider's key."""
    from hivemind_trio.model import shown_credential

    return f" (credential {shown_credential(account)})" if account else ""


def plan_lines(rows: Sequence[PlanRow]) -> list[str]:
    """Return a line for each account: `plan of claude (credential 1a2b3c4d): session 93% ...`."""
    accounts: dict[tuple[str, str], list[PlanRow]] = {}
    for row in rows:
        accounts.setdefault((row.provider, row.account), []).append(row)
    return [
        f"plan of {provider}{credential_text(account)}: {plan_text(of_account)}"
        for (provider, account), of_account in accounts.items()
    ]
