"""Our own proxy as the overhead bench runs it: `serve`'s composition, a policy of the usual size, and a call counter.

Run as `python -m bench.load.proxy UPSTREAM_URL CAP`; prints its port. SIGUSR1 begins counting Python calls, SIGUSR2
ends it and prints how many there were.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

import trio

from hivemind_trio.listen import bind
from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.serve import open_house

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


async def main(upstream: str, cap: int) -> None:
    """Serve until standard input ends."""
    checked = check("bench.hmp", MemoryFiles({"bench.hmp": POLICY.format(upstream=upstream, cap=cap)}))
    assert checked.program is not None, checked.diagnostics
    counter = CallCounter()
    signal.signal(signal.SIGUSR1, counter.begin)
    signal.signal(signal.SIGUSR2, counter.end)
    async with open_house(checked.program, {}, bind("127.0.0.1", 0)) as house:
        print(house.address[1], flush=True)
        # Whoever started us holds the other end of standard input: when they are gone, so are we.
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
