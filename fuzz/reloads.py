"""Reloads under load: no call may fail because its policy changes, however often it does.

    python -m fuzz.reloads --reloads 1000

A provider, a proxy and eight clients that call all the time. The policy is written anew and reloaded by SIGHUP, one
reload after another, drawn from caps, lanes, rules, names of the provider and budgets:

- every call is answered with 200;
- every reload is taken;
- the provider never has more in flight than the highest cap.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import httpx2
import trio

from .chaos import BODY, CLIENTS, PATIENCE_S, Broken

CAPS: Final = (1, 2, 4, 8)
PROVIDERS: Final = ("sim", "other")
LANES: Final = (
    "",
    "lane fleet { weight 1; max 3 }\nrule all { lane fleet }\n",
    'lane crew { weight 4 }\nlane slow { max 1 }\nrule some when model ~ "claude-*" { lane crew; priority 2 }\n',
)
BUDGETS: Final = (
    "",
    "budget calls { requests 9M/day }\n",
    "budget calls per agent { requests 9M/day; output 9G/hour }\n",
)
ANSWER: Final = json.dumps(
    {"type": "message", "content": [], "usage": {"input_tokens": 9, "output_tokens": 9}}
).encode()


@attrs.define(eq=False)
class World:
    """The counts of both sides of the proxy."""

    random: random.Random
    answered: int = 0
    inflight: int = 0
    peak: int = 0
    """Most in flight at the provider."""


def drawn(chance: random.Random, url: str, number: int) -> str:
    """Return a policy; no two are the same text."""
    provider = f'provider {chance.choice(PROVIDERS)} {{ api generic; base "{url}"; concurrency {chance.choice(CAPS)} }}'
    return f"hmp 1\n# {number}\n{provider}\n{chance.choice(LANES)}{chance.choice(BUDGETS)}"


async def provider(world: World, stream: trio.SocketStream) -> None:
    """Answer one connection's requests, each after a moment."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
    received = b""
    try:
        while data := await stream.receive_some():
            received += data
            while (end := received.find(b"\r\n\r\n")) >= 0:
                lines = received[:end].lower().split(b"\r\n")
                length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
                if len(received) < end + 4 + length:
                    break
                received = received[end + 4 + length :]
                world.inflight += 1
                world.peak = max(world.peak, world.inflight)
                await trio.sleep(world.random.uniform(0, 0.03))
                world.inflight -= 1
                await stream.send_all(head + ANSWER)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def client(world: World, url: str) -> None:
    """Send calls, one after another."""
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
        while True:
            answer = await http.post("/v1/messages", json=BODY)
            if answer.status_code != 200:
                raise Broken(f"a call was answered with {answer.status_code}: {answer.text[:300]}")
            world.answered += 1


@attrs.define(eq=False)
class Log:
    """The events of the proxy, as they are told."""

    process: trio.Process
    address: str = ""
    reloaded: int = 0
    wrong: str = ""
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def read(self) -> None:
        """Read until the process ends."""
        assert self.process.stderr is not None
        rest = b""
        async for data in self.process.stderr:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                event = json.loads(line) if line.startswith(b"{") else {"event": line.decode()}
                match event["event"]:
                    case "serving":
                        self.address = str(event["address"])
                    case "policy_loaded":
                        self.reloaded += 1
                    case "policy_rejected" | "attempt_crashed":
                        self.wrong = line.decode()
            self._news.set()
            self._news = trio.Event()

    async def until_reloaded(self, times: int) -> None:
        """Wait until so many reloads were taken; 0: until it serves."""
        with trio.move_on_after(PATIENCE_S):
            while not (self.address and self.reloaded >= times) and not self.wrong:
                await self._news.wait()
        if self.wrong or self.reloaded < times or not self.address:
            raise Broken(f"{self.reloaded} of {times} reloads were taken; {self.wrong or 'it says nothing'}")


async def run(reloads: int, seed: int) -> World:
    """Reload so many times.

    Raises:
        Broken: An invariant does not hold.
    """
    world = World(random.Random(seed))
    with tempfile.TemporaryDirectory() as name:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, partial(provider, world), listeners)
            url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            policy = Path(name) / "team.hmp"
            policy.write_text(drawn(world.random, url, 0))
            command = [sys.executable, "-m", "hivemind_trio", "serve", "--policy", str(policy)]
            process = await trio.lowlevel.open_process(
                [*command, "--listen", "127.0.0.1:0", "--log-format", "json"],
                stderr=subprocess.PIPE,
                env={**os.environ, "XDG_STATE_HOME": name, "OLLAMA_HOST": "127.0.0.1:1"},
            )
            try:
                log = Log(process)
                nursery.start_soon(log.read)
                await log.until_reloaded(0)
                for _ in range(CLIENTS):
                    nursery.start_soon(client, world, log.address)
                for number in range(1, reloads + 1):
                    fresh = policy.with_suffix(".new")
                    fresh.write_text(drawn(world.random, url, number))
                    fresh.replace(policy)
                    process.send_signal(signal.SIGHUP)
                    await log.until_reloaded(number)
                    if number % 50 == 0 or number == reloads:
                        print(f"{number}/{reloads} reloads, {world.answered} calls answered", flush=True)
                if world.peak > max(CAPS):
                    raise Broken(f"{world.peak} in flight under caps of at most {max(CAPS)}")
            finally:
                nursery.cancel_scope.cancel()
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()
    return world


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reloads", type=int, default=100, help="how many (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the policies (0)")
    given = parser.parse_args(arguments)
    broken: list[BaseException] = []
    try:
        world = trio.run(run, given.reloads, given.seed)
    except* (Broken, httpx2.HTTPError) as found:
        broken += found.exceptions
    if broken:
        print(f"{broken[0]!r}", file=sys.stderr)
        return 1
    print(f"{given.reloads} reloads, {world.answered} calls, none failed; at most {world.peak} in flight")
    return 0


if __name__ == "__main__":
    sys.exit(main())
