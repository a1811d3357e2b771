"""The proxy of the door bench: `serve`'s composition, and an instrument that times each turn of the loop.

Run as `python bench/load/turns.py UPSTREAM_URL MAX_BODY_MIB`, with the tree to be measured first on the path; prints
its port. For each line on standard input it prints the longest turn since the line before and its CPU so far, in ns;
after a line `refuse` every call is refused and turns are long, as if the loop lagged, until the next line.
"""

from __future__ import annotations

import sys
import time
from time import process_time_ns, thread_time_ns

import attrs
import trio

from hivemind_trio.listen import bind
from hivemind_trio.listen.overload import LoopLag
from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.serve import open_house
from hivemind_trio.serve.assembly import settle_memory

POLICY = """\
hmp 1
server {{ max-body {max_body}MiB }}
provider bench {{
  api         openai
  base        "{upstream}"
  concurrency 200
}}
rule ci when meta.job == "ci" {{ priority 1 }}
"""


class LongestTurn(trio.abc.Instrument):
    """CPU time that the loop has spent between two looks at its sockets, the longest."""

    def __init__(self) -> None:
        self.longest_ns = 0
        self._began_ns = thread_time_ns()

    def after_io_wait(self, timeout: float) -> None:
        """A turn begins."""
        self._began_ns = thread_time_ns()

    def before_io_wait(self, timeout: float) -> None:
        """It is over."""
        self.longest_ns = max(self.longest_ns, thread_time_ns() - self._began_ns)


@attrs.define
class Forced:
    """An overload that is only said, so that a refusal is measured without the calls that cause it."""

    lag: LoopLag
    is_on: bool = False

    def switch(self, on: bool) -> None:
        """Refuse all calls, or leave it to the law."""
        if on == self.is_on:
            return
        self.is_on = self.lag.is_overloaded = on
        (trio.lowlevel.remove_instrument if on else trio.lowlevel.add_instrument)(self.lag)

    async def run(self) -> None:
        """Make turns as long as those of an overloaded loop, without the CPU time of its calls."""
        while True:
            if self.is_on:
                time.sleep(self.lag.limit_s)  # noqa: ASYNC251  # to hold the loop up is the point
                await trio.lowlevel.checkpoint()
            else:
                await trio.sleep(0.05)


async def main(upstream: str, max_body: str) -> None:
    """Serve until standard input ends."""
    checked = check("bench.hmp", MemoryFiles({"bench.hmp": POLICY.format(upstream=upstream, max_body=max_body)}))
    assert checked.program is not None, checked.diagnostics
    turns = LongestTurn()
    trio.lowlevel.add_instrument(turns)
    async with trio.open_nursery() as nursery, open_house(checked.program, {}, bind("127.0.0.1", 0)) as house:
        settle_memory()  # as `serve` does
        print(house.address[1], flush=True)
        forced = Forced(house.listener.lag)
        nursery.start_soon(forced.run)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            forced.switch(line == "refuse\n")
            print(turns.longest_ns, process_time_ns(), flush=True)
            turns.longest_ns = 0
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
