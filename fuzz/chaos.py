"""Processes that are killed: budgets after `kill -9` at random moments under load.

    python -m fuzz.chaos --kills 300

A provider that counts what reaches it, a proxy that is killed again and again, and eight clients. After every kill the
state is read as the next run would:

- whatever a client was answered is charged;
- nothing is charged that never reached the proxy;
- the provider never gets more than the budget allows.

A run in which no call reaches the provider before a kill tests nothing, and fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import httpx2
import trio

from hivemind_trio.store import SqliteStore, StateError, state_place
from tests.support.policies import compiled

CLIENTS: Final = 8
LONGEST_S: Final = 1.5
"""Time between the start of service and a kill, at most."""

PATIENCE_S: Final = 60.0

BODY: Final = {"model": "claude-x", "max_tokens": 20, "messages": [{"role": "user", "content": "hello"}]}

POLICY: Final = """hmp 1
provider sim {{ api generic; base "{url}"; concurrency 4 }}
budget calls {{ requests {requests}/day; window sliding; at 100% {{ deny "enough" }} }}
"""


@attrs.define(eq=False)
class World:
    """The counts of both sides of the proxy."""

    folder: Path
    random: random.Random
    served: int = 0
    """Requests that reached the provider."""
    sent: int = 0
    """Requests that clients began to send."""
    answered: int = 0
    """Requests of clients that were answered with 200."""
    charged: int = 0
    """By the state, after the last kill."""


class Broken(AssertionError):  # noqa: N818 - what it is, not whose fault
    """An invariant does not hold."""


async def provider(world: World, stream: trio.SocketStream) -> None:
    """Answer one connection's requests, each after a moment."""
    answer = json.dumps(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 9, "output_tokens": 9},
        }
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
    received = b""
    try:
        while data := await stream.receive_some():
            received += data
            while (end := received.find(b"\r\n\r\n")) >= 0:
                length = next(
                    int(line.split(b":")[1])
                    for line in received[:end].lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                if len(received) < end + 4 + length:
                    break
                received = received[end + 4 + length :]
                world.served += 1
                await trio.sleep(world.random.uniform(0, 0.05))
                await stream.send_all(head + answer)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def client(world: World, url: str) -> None:
    """Send calls, one after another, until the proxy is gone or the budget is."""
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
        while True:
            world.sent += 1
            try:
                answer = await http.post("/v1/messages", json=BODY)
            except httpx2.HTTPError:
                return
            if answer.status_code != 200:
                return
            world.answered += 1


async def one_life(world: World, policy: Path) -> None:
    """Start the proxy, load it, and kill it at a random moment."""
    environment = {**os.environ, "XDG_STATE_HOME": str(world.folder), "OLLAMA_HOST": "127.0.0.1:1"}
    command = [sys.executable, "-m", "hivemind_trio", "serve", "--policy", str(policy)]
    process = await trio.lowlevel.open_process(
        [*command, "--listen", "127.0.0.1:0", "--log-format", "json"], stderr=subprocess.PIPE, env=environment
    )
    try:
        url = await _address(process)
        async with trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(client, world, url)
            await trio.sleep(world.random.uniform(0, LONGEST_S))
            process.kill()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _address(process: trio.Process) -> str:
    assert process.stderr is not None
    lines = b""
    with trio.fail_after(PATIENCE_S):
        async for data in process.stderr:
            lines += data
            for line in lines.split(b"\n")[:-1]:
                event = json.loads(line) if line.startswith(b"{") else {}
                if event.get("event") == "serving":
                    return str(event["address"])
    raise Broken(f"the proxy did not start: {lines.decode()}")


def charged(world: World, policy: Path) -> int:
    """Return what the next run would find spent."""
    program = compiled(policy.read_text())
    place = state_place(str(policy), program.store, 0)
    store = SqliteStore.open(str(world.folder / place.state), time.time_ns(), lambda account: account.window_ns)
    try:
        return sum(amount for slots in store.restored.spends.values() for _, amount in slots)
    finally:
        store.close()


def check(world: World, requests: int) -> None:
    """Hold the state against both sides.

    Raises:
        Broken: It is wrong.
    """
    facts = f"{world.sent} sent, {world.served} served, {world.answered} answered, {world.charged} charged"
    if world.charged < world.answered:
        raise Broken(f"calls were answered and are not charged: {facts}")
    if world.charged < world.served:
        raise Broken(f"calls reached the provider and are not charged: {facts}")
    if world.charged > world.sent:
        raise Broken(f"more is charged than was ever sent: {facts}")
    if world.served > requests:
        raise Broken(f"the provider got more than the budget of {requests}: {facts}")


async def run(kills: int, seed: int) -> None:
    """Kill the proxy so many times.

    Raises:
        Broken: An invariant does not hold.
    """
    chance = random.Random(seed)
    done = reached = 0
    while done < kills:
        with tempfile.TemporaryDirectory() as name:
            world = World(Path(name), chance)
            os.environ["XDG_STATE_HOME"] = name
            requests = chance.choice([200, 10_000])
            async with trio.open_nursery() as nursery:
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
                nursery.start_soon(trio.serve_listeners, partial(provider, world), listeners)
                port = listeners[0].socket.getsockname()[1]
                policy = Path(name) / "team.hmp"
                policy.write_text(POLICY.format(url=f"http://127.0.0.1:{port}", requests=requests))
                for _ in range(min(10, kills - done)):
                    await one_life(world, policy)
                    world.charged = await trio.to_thread.run_sync(charged, world, policy)
                    check(world, requests)
                    done += 1
                    print(
                        f"\r{done}/{kills} kills: budget {requests}, {world.served} reached the provider, "
                        f"{world.answered} answered, {world.charged} charged   ",
                        end="" if sys.stdout.isatty() else "\n",
                        flush=True,
                    )
                nursery.cancel_scope.cancel()
            reached += world.served
    if not reached:
        raise Broken("no call reached the provider before a kill, so nothing was tried: is the machine busy?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many times to kill it (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    given = parser.parse_args(arguments)
    broken: list[BaseException] = []
    try:
        trio.run(run, given.kills, given.seed)
    except* (Broken, StateError) as found:
        broken += found.exceptions
    if broken:
        print(f"\n{broken[0]}", file=sys.stderr)
        return 1
    print(f"\n{given.kills} kills, every budget was right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
