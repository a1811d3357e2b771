"""Hints on disk: what was learned of each provider, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from hivemind_trio.policy import Renames
from hivemind_trio.scheduler import Beliefs, BeliefsRestored, ProviderBeliefs
from hivemind_trio.store.state.interface import Learned

WHAT: Final = "beliefs"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ProviderBeliefs).decode


def hints(beliefs: Beliefs) -> Learned:
    """Return what is to be kept of the beliefs."""
    return {(provider, WHAT): _encode(believed).decode() for provider, believed in beliefs.items()}


def restored_beliefs(
    learned: Mapping[tuple[str, str], tuple[str, int]], renames: Renames, wall_ns: int
) -> BeliefsRestored:
    """Return what was kept, under the names of now. What cannot be read, of another version, is left out."""
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
    return BeliefsRestored(beliefs, ages_ns)
