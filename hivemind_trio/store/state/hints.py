"""Hints on disk: what was learned of each provider, and the sessions of clients, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs
import msgspec

from hivemind_trio.policy import Renames
from hivemind_trio.scheduler import Beliefs, BeliefsRestored, KeptSessions, KeptThread, KeptTotal, ProviderBeliefs
from hivemind_trio.store.state.interface import Learned

WHAT: Final = "beliefs"

SESSIONS_HINT: Final = "sessions"
"""Kind of the hint; workers keep one each, under their own names."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ProviderBeliefs).decode


@final
@attrs.frozen
class _Sessions:
    """Sessions, by the time of an engine."""

    began_wall_ns: int
    sessions: KeptSessions


_decode_sessions: Final = msgspec.json.Decoder(_Sessions).decode


def hints(beliefs: Beliefs, sessions: KeptSessions, began_wall_ns: int) -> Learned:
    """Return what is to be kept of the beliefs and sessions.

    Args:
        began_wall_ns: When the engine began, on the wall clock; the same each time, or all would be news.
    """
    learned = {(provider, WHAT): _encode(believed).decode() for provider, believed in beliefs.items()}
    if sessions.totals:
        learned["", SESSIONS_HINT] = _encode(_Sessions(began_wall_ns, sessions)).decode()
    return learned


def restored_beliefs(
    learned: Mapping[tuple[str, str], tuple[str, int]], renames: Renames, wall_ns: int, began_wall_ns: int
) -> BeliefsRestored:
    """Return what was kept, under the names of now. What cannot be read, of another version, is left out.

    Args:
        began_wall_ns: When the engine of now began, on the wall clock.
    """
    beliefs: dict[str, ProviderBeliefs] = {}
    ages_ns: dict[str, int] = {}
    for (provider, what), (value, at_ns) in learned.items():
        if what != WHAT:
            continue
        name = renames.name("provider", provider)
        try:
            beliefs[name] = _decode(value)
        except msgspec.MsgspecError:
            continue
        ages_ns[name] = max(0, wall_ns - at_ns)
    return BeliefsRestored(beliefs, ages_ns, _restored_sessions(learned, began_wall_ns))


def _restored_sessions(learned: Mapping[tuple[str, str], tuple[str, int]], began_wall_ns: int) -> KeptSessions:
    """Return the sessions of all processes, those seen last at the end; of each, what was known last."""
    threads: dict[tuple[str, str], KeptThread] = {}
    totals: dict[tuple[str, str], KeptTotal] = {}
    for (_, what), (value, _) in sorted(learned.items(), key=lambda one: one[1][1]):
        if what != SESSIONS_HINT:
            continue
        try:
            found = _decode_sessions(value)
        except msgspec.MsgspecError:
            continue
        kept = found.sessions.shifted(found.began_wall_ns - began_wall_ns)
        for thread in kept.threads:
            threads.pop((thread.caller, thread.job), None)
            threads[thread.caller, thread.job] = thread
        for total in kept.totals:
            totals.pop((total.caller, total.session), None)
            totals[total.caller, total.session] = total
    return KeptSessions(tuple(threads.values()), tuple(totals.values()))
