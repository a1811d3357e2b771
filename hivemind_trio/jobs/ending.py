"""Classes of ends: what the end of a job's process means for the job."""

from __future__ import annotations

import re
import signal
from enum import StrEnum
from typing import Final, final

import attrs

from .adapters import Adapter, result_in

LIMIT_STATUSES: Final = frozenset({402, 429, 529})


class EndKind(StrEnum):
    """Class of an end."""

    DONE = "done"
    LIMIT = "limit"
    """A limit of the provider, the plan or the policy: it goes on when that allows."""
    CRASH = "crash"
    """Killed, or without its provider: it may go on at once."""
    LOST = "lost"
    """There is no such session: it begins anew."""
    FAILED = "failed"


@final
@attrs.frozen(kw_only=True)
class LastCall:
    """The latest call of a job that is over, as the proxy saw it."""

    status: int
    """0: the agent disconnected before an answer."""
    reason: str
    """Reason of its wait or rejection."""
    was_rejected: bool
    """The proxy's own answer."""
    opens_s: float | None = None
    """Time of the wall clock when such a call would be served again; None: not known."""


@final
@attrs.frozen(kw_only=True)
class Ending:
    """The end of a process, and what is known of it."""

    end: EndKind
    words: str
    """For people: reason."""
    opens_s: float | None = None
    """Time of the wall clock when it may go on; None: not known, or not of a limit."""


def classify(
    adapter: Adapter,
    returncode: int,
    output: str,
    last: LastCall | None,
    limit: LastCall | None = None,
    *,
    resumed: bool,
) -> Ending:
    """Classify the end of a process.

    Args:
        adapter: Of the agent.
        returncode: Exit status; negative: the signal that ended it.
        output: EndKind of what it printed, standard error included.
        last: The process's latest call; None: it had none, or the proxy is another process.
        limit: Its latest call that met a limit; None: none did.
        resumed: It was told to resume a session.
    """
    result = result_in(output)
    if returncode == 0 and not result.get("is_error"):
        return Ending(end=EndKind.DONE, words="")
    if resumed and adapter.lost and re.search(adapter.lost, output):
        return Ending(end=EndKind.LOST, words="its session does not exist")
    status = result.get("api_error_status")
    says_limit = status in LIMIT_STATUSES or bool(adapter.limit and re.search(adapter.limit, last_line(output)))
    # Where the proxy has seen its calls, an agent that only talks of a limit has met none.
    if limit is not None and (last is limit or says_limit):
        met = limit.reason if limit.was_rejected else f"the provider answered {limit.status}"
        return Ending(end=EndKind.LIMIT, words=f"limit: {met}", opens_s=limit.opens_s)
    if last is None and says_limit:
        return Ending(end=EndKind.LIMIT, words="limit: " + (last_line(output) or f"status {status}"))
    if returncode < 0:
        return Ending(end=EndKind.CRASH, words=f"ended by {_signal(-returncode)}")
    if returncode > 128:
        return Ending(end=EndKind.CRASH, words=f"ended by {_signal(returncode - 128)}")
    if last is not None and (last.status == 0 or last.status >= 500):
        met = last.reason if last.was_rejected else f"{last.status}"
        return Ending(end=EndKind.CRASH, words=f"its last call failed: {met}")
    said = f"{result['result']}" if isinstance(result.get("result"), str) else last_line(output)
    return Ending(end=EndKind.FAILED, words=f"exit status {returncode}" + (f": {said[:200]}" if said else ""))


def last_line(output: str) -> str:
    """Return the last line that says something."""
    return next((line.strip()[:200] for line in reversed(output.splitlines()) if line.strip()), "")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
