"""Memory of this machine, or of the container that the process runs in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CGROUP: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")
"""Files of the versions 2 and 1; without a limit they say `max` or an absurd number."""


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """Return the bytes of memory that there are, or that the container may use if that is less."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _LIMITS:
        try:
            said = (cgroup / name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if said.isdecimal():
            there = min(there, int(said))
    return there
