"""Process of one study of the last hour: its task comes on standard input, its result goes to standard output.

A study computes for seconds; in a thread of the proxy it would take the interpreter from calls.
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from typing import Final

import msgspec

from hivemind_trio.admin.operated import SECOND_NS

from .advice_study import CPU_NS, AdviceTask, Pace, studied

NICE: Final = 19


def main() -> None:
    """Do the study."""
    # Hardened services may do neither, and the study keeps to its share anyway.
    with suppress(OSError, ValueError):
        os.nice(NICE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (4 * CPU_NS // SECOND_NS, resource.RLIM_INFINITY))
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=AdviceTask)
    sys.stdout.buffer.write(msgspec.json.encode(studied(task, Pace())))


if __name__ == "__main__":
    main()
