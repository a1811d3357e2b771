"""The proxy of the door bench: `serve`'s composition, and an instrument that times each turn of the loop.

Run as `python bench/load/turns.py UPSTREAM_URL MAX_BODY_MIB`, with the tree to be measured first on the path; prints
its port. For each line on standard input it prints the longest turn since the line before and its CPU so far, in ns.
"""

from __future__ import annotations

import gc
import sys
from time import process_time_ns, thread_time_ns

import trio

from hivemind_trio.listen import bind
from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.serve import open_house

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


async def main(upstream: str, max_body: str) -> None:
    """Serve until standard input ends."""
    checked = check("bench.hmp", MemoryFiles({"bench.hmp": POLICY.format(upstream=upstream, max_body=max_body)}))
    assert checked.program is not None, checked.diagnostics
    turns = LongestTurn()
    trio.lowlevel.add_instrument(turns)
    async with open_house(checked.program, {}, bind("127.0.0.1", 0)) as house:
        gc.collect()
        gc.freeze()  # as `serve` does
        print(house.address[1], flush=True)
        while await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            print(turns.longest_ns, process_time_ns(), flush=True)
            turns.longest_ns = 0


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
