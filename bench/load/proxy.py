"""Our own proxy as the overhead bench runs it: `serve`'s composition, a policy of the usual size, and a call counter.

Run as `python -m bench.load.proxy UPSTREAM_URL CAP [KEEPS [FOLDER]]`; prints its port. SIGUSR1 begins counting Python
calls, SIGUSR2 ends it and prints how many there were. KEEPS names what it has beside the usual policy: `nothing` a
budget in memory, `state` one in a file of the folder, `journal` a journal there too, as `serve` has by default.
"""

from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import trio

from hivemind_trio.listen import bind
from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.serve import open_house
from hivemind_trio.serve.assembly import settle_memory
from hivemind_trio.serve.state import open_state
from hivemind_trio.store import open_journal

POLICY = """\
hmp 1
provider bench {{
  api         openai
  base        "{upstream}"
  concurrency {cap}
}}
lane interactive {{ weight 8; queue 10k }}
lane batch {{ weight 1; queue 10k }}
agent ci when header.x-ci-job != "" {{ lane batch }}
rule huge when tokens.in > 120k {{ lane batch; priority 1 }}
rule nightly when agent == ci and model ~ "gpt-5*" {{ lane batch; priority 2 }}
rule urgent when header.x-priority == "urgent" {{ lane interactive; priority 9 }}
rule people {{ lane interactive; priority 5 }}
"""


BUDGET = "budget daily { tokens 900G/day }\n"
"""Each call claims of it and spends."""


class CallCounter:
    """Counts the calls of Python functions, coroutines that are resumed included, and of C functions."""

    def __init__(self) -> None:
        self.python = self.c = 0

    def begin(self, *_signal: object) -> None:
        self.python = self.c = 0
        sys.setprofile(self._event)

    def end(self, *_signal: object) -> None:
        sys.setprofile(None)
        print(self.python, self.c, flush=True)

    def _event(self, _frame: FrameType, kind: str, _arg: Any) -> None:
        if kind == "call":
            self.python += 1
        elif kind == "c_call":
            self.c += 1


async def main(upstream: str, cap: int, keeps: str = "", folder: str = "") -> None:
    """Serve until standard input ends."""
    policy = POLICY.format(upstream=upstream, cap=cap) + (BUDGET if keeps else "")
    checked = check("bench.hmp", MemoryFiles({"bench.hmp": policy}))
    assert checked.program is not None, checked.diagnostics
    counter = CallCounter()
    signal.signal(signal.SIGUSR1, counter.begin)
    signal.signal(signal.SIGUSR2, counter.end)
    async with AsyncExitStack() as stack:
        journal = state = None
        if keeps in ("state", "journal"):
            state = open_state(str(Path(folder, "state.db")), checked.program)
            stack.callback(state.close)
        if keeps == "journal":
            journal = await stack.enter_async_context(
                open_journal(str(Path(folder, "bench.journal")), on_trouble=print)
            )
        sockets = bind("127.0.0.1", 0)
        house = await stack.enter_async_context(open_house(checked.program, {}, sockets, journal=journal, state=state))
        settle_memory()
        print(house.address[1], flush=True)
        # Whoever started us holds the other end of standard input: when they are gone, so are we.
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
