"""One limits group of one provider: its slots, and what the provider allows it per window."""

from __future__ import annotations

from typing import final

import attrs

from ._quota import Quotas
from ._slots import Slots


@final
@attrs.define(eq=False)
class Group:
    """Found by its glob, it lives on while something is held of it or counts against it."""

    slots: Slots = attrs.field(factory=lambda: Slots(None), init=False)
    quotas: Quotas = attrs.field(factory=Quotas, init=False)
