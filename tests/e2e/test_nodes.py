"""Several proxies before one provider: together they hold its cap, whatever becomes of one of them or of the store."""

from __future__ import annotations

import re
import signal
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
import trustme

from hivemind_trio.demo import SimulatedProvider
from hivemind_trio.sim import Counting, Quota, Traits
from tests.e2e.control import command, own_runtime
from tests.e2e.process import PATIENCE_S, Proxy, serving
from tests.support.redis import RedisServer, StoreAddress, needs_redis, redis_server, store_address

pytestmark = [pytest.mark.slow, needs_redis]

CAP = 6
MS = 1_000_000
SLOW = Traits(concurrency=CAP, latency_mean_ns=60 * MS, latency_sigma_ns=30 * MS, latency_min_ns=20 * MS)


@attrs.define(eq=False)
class Nodes:
    provider: SimulatedProvider
    redis: RedisServer
    address: StoreAddress
    """Address of the store, as the nodes know it."""
    proxies: list[Proxy]
    done: list[int]
    """Calls that ended well, by node."""
    policies: list[Path]
    runtime: dict[str, str]
    _stack: AsyncExitStack

    async def start(self, node: int) -> None:
        """Start a node, maybe again, under its name."""
        policy = self.policies[node]
        env = {**self.runtime, "XDG_STATE_HOME": f"{policy.parent}"}
        started = await self._stack.enter_async_context(serving("--policy", policy, "--node", f"n{node}", env=env))
        self.proxies[node:] = [started, *self.proxies[node + 1 :]]

    @property
    def peak(self) -> int:
        """The most at once that ever asked, refused ones included."""
        return self.provider.world.inflight_max

    async def load(self, node: int, agents: int) -> None:
        """Agents that call one node, again and again, until cancelled; a node that is gone is left alone."""

        async def agent() -> None:
            async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
                while True:
                    try:
                        answer = await client.post(
                            f"{self.proxies[node].url}/v1/chat/completions",
                            json={"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]},
                        )
                    except httpx2.HTTPError:
                        return
                    self.done[node] += answer.status_code == 200

        async with trio.open_nursery() as nursery:
            for _ in range(agents):
                nursery.start_soon(agent)

    async def more(self, node: int, calls: int) -> None:
        """Wait until a node has served so many calls more."""
        wanted = self.done[node] + calls
        with trio.fail_after(PATIENCE_S):
            await self.provider.until(lambda: self.done[node] >= wanted)


@asynccontextmanager
async def nodes(
    folder: Path,
    number: int,
    traits: Traits = SLOW,
    more: str = "",
    beside: str = "",
    cap: str = f"{CAP}",
    keeps: tuple[str, ...] = (),
) -> AsyncIterator[Nodes]:
    """Start so many proxies that share one Redis; agents run until the block ends.

    Args:
        more: Of their provider.
        beside: Of their policy.
        cap: `concurrency` of their policy.
        keeps: Options of their Redis about what it keeps on disk; nothing, if there are none.
    """
    with trio.fail_after(4 * PATIENCE_S):
        async with AsyncExitStack() as stack:
            redis = await stack.enter_async_context(redis_server(folder, *keeps))
            address = await stack.enter_async_context(store_address(redis))
            provider = SimulatedProvider(traits, seed=7)
            nursery = await stack.enter_async_context(trio.open_nursery())
            await nursery.start(provider.run)
            fleet = Nodes(provider, redis, address, [], [0] * number, [], stack.enter_context(own_runtime()), stack)
            for i in range(number):
                policy = folder / f"node{i}" / "team.hmp"
                policy.parent.mkdir()
                policy.write_text(
                    f"hmp 1\nserver {{ nodes {number} }}\n"
                    f'store redis {{ url "{address.url}"; lease 4s renew 250ms gone 1s; outage local 50% }}\n'
                    f'provider sim {{ api generic; base "{provider.url}"; concurrency {cap}; {more} }}\n{beside}'
                )
                fleet.policies.append(policy)
                await fleet.start(i)
            yield fleet
            nursery.cancel_scope.cancel()


async def test_two_nodes_hold_the_cap_together_and_each_serves_with_both_keys_of_an_organisation(
    tmp_path: Path,
) -> None:
    keys = [tmp_path / "key-a", tmp_path / "key-b"]
    for key in keys:
        key.write_text(key.name)
        key.chmod(0o600)
    more = f'account a {{ key file("{keys[0]}") }}\naccount b {{ key file("{keys[1]}"); shares a }}\nspread even'
    async with nodes(tmp_path, 2, more=more) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.more(0, 40)
        await fleet.more(1, 40)
        assert fleet.peak == CAP
        headers = [dict(seen.headers) for seen in fleet.provider.seen]
        used = Counter(value for one in headers for value in one.values() if b"key-" in value)
        assert used.keys() == {b"Bearer key-a", b"Bearer key-b"}
        assert min(used.values()) > 20
        nursery.cancel_scope.cancel()


async def test_a_node_alone_gets_every_slot_and_gives_half_back_when_another_is_asked(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 12)
        await fleet.provider.until(lambda: fleet.provider.world.inflight == CAP)
        nursery.start_soon(fleet.load, 1, 12)
        await fleet.more(1, 40)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


async def test_the_slots_of_a_killed_node_go_to_the_other(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.more(0, 10)
        fleet.proxies[0].signal(signal.SIGKILL)
        await fleet.proxies[0].ended()
        with trio.fail_after(PATIENCE_S):
            await fleet.provider.until(lambda: fleet.provider.world.inflight == CAP)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


async def test_a_stopped_node_leaves_the_other_within_the_cap(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.more(0, 10)
        fleet.proxies[0].signal(signal.SIGSTOP)
        await fleet.more(1, 60)
        fleet.proxies[0].signal(signal.SIGCONT)
        await fleet.more(0, 10)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


async def test_without_the_store_every_node_goes_on_and_none_beyond_the_cap(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        # A node that the store has not answered yet has nothing, and one without a slot waits for its floor for 30 s.
        await fleet.more(0, 10)
        await fleet.more(1, 10)
        await fleet.redis.stop()
        await fleet.proxies[0].says("shared_store_away")
        await fleet.more(0, 20)
        await fleet.more(1, 20)
        await fleet.redis.start()  # with nothing in it
        await fleet.proxies[0].says("shared_store_back")
        await fleet.more(0, 20)
        await fleet.more(1, 20)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("promoted_first", [True, False])
async def test_nodes_hold_the_cap_while_their_store_fails_over_to_a_replica(
    tmp_path: Path, promoted_first: bool
) -> None:
    async with nodes(tmp_path, 2) as fleet, redis_server(tmp_path) as replica, trio.open_nursery() as nursery:
        await replica.follow(fleet.redis)
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.more(0, 20)
        await fleet.more(1, 20)
        if promoted_first:
            await replica.send("REPLICAOF", "NO", "ONE")
            await fleet.more(0, 20)  # what is granted from here on is lost
            fleet.address.switch(replica)
            await fleet.redis.stop()
        else:
            await fleet.redis.stop()
            fleet.address.switch(replica)  # it answers, and takes no writes
            await fleet.proxies[0].says("shared_store_away")
            await fleet.more(0, 10)
            await replica.send("REPLICAOF", "NO", "ONE")
            await fleet.proxies[0].says("shared_store_back")
        await fleet.more(0, 20)
        await fleet.more(1, 20)
        fleet.proxies[0].signal(signal.SIGKILL)
        await fleet.proxies[0].ended()
        with trio.fail_after(PATIENCE_S):  # the new store grants what the killed node had
            await fleet.provider.until(lambda: fleet.provider.world.inflight == CAP)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


async def test_nodes_hold_the_cap_while_connections_to_the_store_are_reset(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        for _ in range(10):
            await fleet.more(0, 5)
            fleet.address.reset()
        await fleet.more(0, 20)
        await fleet.more(1, 20)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


async def test_slots_change_hands_slowly_where_the_store_is_slow(tmp_path: Path) -> None:
    def says_slow(status: Any) -> bool:
        return any("for an answer" in one["text"] for one in status["notices"] if one["kind"] == "store")

    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        first = fleet.proxies[0]
        nursery.start_soon(fleet.load, 0, 8)
        await fleet.more(0, 20)  # it has all slots
        fleet.address.delay_s = 0.4
        slow = await first.says("shared_store_slow")
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.more(1, 20)
        await status_when(first, says_slow)
        fleet.address.delay_s = 0.0
        await status_when(first, lambda status: not says_slow(status))
        assert 0.25 < slow["trip_s"] <= 2
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


async def test_nodes_hold_the_cap_when_the_store_is_emptied(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        for _ in range(5):
            await fleet.more(0, 10)
            await fleet.redis.send("FLUSHALL")
        await fleet.more(0, 20)
        await fleet.more(1, 20)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


async def test_a_node_that_ends_in_order_leaves_its_slots_to_the_other(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        await fleet.more(0, 10)
        fleet.proxies[0].signal(signal.SIGTERM)
        assert await fleet.proxies[0].ended() == 0
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.provider.until(lambda: fleet.provider.world.inflight == CAP)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


async def test_a_node_that_was_stopped_for_longer_than_its_lease_starts_nothing_with_its_old_share(
    tmp_path: Path,
) -> None:
    async with nodes(tmp_path, 2) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.more(0, 10)
        # Every call that was sent has arrived, and counts.
        await fleet.provider.until(lambda: fleet.provider.world.inflight == CAP)
        fleet.proxies[0].signal(signal.SIGSTOP)
        floor = CAP // 2 // 2
        with trio.fail_after(PATIENCE_S):  # the other has all but what a node uses without the store
            await fleet.provider.until(lambda: fleet.provider.world.inflight >= CAP - floor)
            await fleet.more(1, 300)
            await fleet.provider.until(lambda: fleet.provider.world.inflight >= CAP - floor)
        fleet.proxies[0].signal(signal.SIGCONT)
        await fleet.more(0, 10)
        assert fleet.peak == CAP
        nursery.cancel_scope.cancel()


PER_S = 40
LIMITED = Traits(
    requests=Quota(limit=PER_S, window_ns=1_000 * MS, counting=Counting.SLIDING),
    latency_mean_ns=20 * MS,
    latency_sigma_ns=5 * MS,
    tells=False,
)


async def test_two_nodes_draw_of_one_rate_limit_and_the_provider_refuses_none(tmp_path: Path) -> None:
    limits = f"limits {{ requests {PER_S}/s }}"
    async with nodes(tmp_path, 2, LIMITED, limits) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.more(0, 80)
        await fleet.more(1, 80)
        fleet.proxies[0].signal(signal.SIGKILL)
        await fleet.proxies[0].ended()
        await fleet.more(1, 80)
        # A call that a busy machine delays on its way counts in a later window of the provider.
        assert fleet.provider.world.refused <= PER_S // 5
        nursery.cancel_scope.cancel()


async def test_a_rate_limit_is_kept_when_the_store_loses_what_was_drawn(tmp_path: Path) -> None:
    limits = f"limits {{ requests {PER_S}/s }}"
    async with nodes(tmp_path, 2, LIMITED, limits) as fleet, trio.open_nursery() as nursery:
        nursery.start_soon(fleet.load, 0, 8)
        nursery.start_soon(fleet.load, 1, 8)
        await fleet.more(0, 40)
        await fleet.redis.stop()
        await fleet.redis.start()
        await fleet.more(0, 80)
        await fleet.more(1, 80)
        # A call that a busy machine delays on its way counts in a later window of the provider.
        assert fleet.provider.world.refused <= PER_S // 5
        nursery.cancel_scope.cancel()


EMPTY_OBJECT = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@attrs.define(eq=False)
class GatedProvider:
    """A provider whose TLS handshakes wait, and whose answers do, too."""

    url: str
    _listener: trio.SocketListener
    _tls: ssl.SSLContext
    connections: int = 0
    handshakes: int = 0
    inflight: int = 0
    peak: int = 0
    answered: int = 0
    gate: trio.Event = attrs.field(factory=trio.Event)
    """Of the first connection's handshake."""
    answer: trio.Event = attrs.field(factory=trio.Event)
    _changed: trio.Event = attrs.field(factory=trio.Event)

    @classmethod
    async def create(cls, folder: Path) -> GatedProvider:
        """Return one that listens; `folder/ca.pem` is the authority."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        return cls(f"https://127.0.0.1:{listener.socket.getsockname()[1]}", listener, tls)

    async def run(self) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._serve, [self._listener])

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about the counts is true."""
        with trio.fail_after(PATIENCE_S):
            while not holds():
                await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        is_first = self.connections == 1
        self._change()
        if is_first:
            await self.gate.wait()
        try:
            secured = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
            await secured.do_handshake()
            self.handshakes += 1
            self._change()
            while await secured.receive_some():  # head and body are small, and come together
                self.inflight += 1
                self.peak = max(self.peak, self.inflight)
                self._change()
                await self.answer.wait()
                self.inflight -= 1
                self.answered += 1
                self._change()
                await secured.send_all(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
                )
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


async def test_a_call_that_was_admitted_before_a_long_stop_is_not_sent_after_it(tmp_path: Path) -> None:
    statuses: list[int] = []

    async def call(proxy: Proxy) -> None:
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            asked = {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]}
            statuses.append((await client.post(f"{proxy.url}/v1/chat/completions", json=asked)).status_code)

    with trio.fail_after(4 * PATIENCE_S):
        async with AsyncExitStack() as stack:
            redis = await stack.enter_async_context(redis_server(tmp_path))
            provider = await GatedProvider.create(tmp_path)
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(provider.run)
            proxies = []
            for name in ("stopped", "other"):
                policy = tmp_path / name / "team.hmp"
                policy.parent.mkdir()
                policy.write_text(
                    f'hmp 1\nserver {{ nodes 2 }}\nstore redis {{ url "{redis.url}"; '
                    "lease 4s renew 250ms gone 1s; outage local 50% }\n"
                    f'provider sim {{ api generic; base "{provider.url}"; concurrency 1; timeout connect 100s }}\n'
                )
                env = {"XDG_STATE_HOME": f"{policy.parent}", "SSL_CERT_FILE": f"{tmp_path / 'ca.pem'}"}
                started = serving("--policy", policy, "--node", name, env=env)
                proxies.append(await stack.enter_async_context(started))
            stopped, other = proxies
            nursery.start_soon(call, stopped)
            await provider.until(lambda: provider.connections == 1)  # admitted, and not sent yet
            stopped.signal(signal.SIGSTOP)
            nursery.start_soon(call, other)
            await provider.until(lambda: provider.inflight == 1)  # the only slot is the other's now
            stopped.signal(signal.SIGCONT)
            provider.gate.set()
            await provider.until(lambda: provider.handshakes == 2)
            with trio.move_on_after(1.0):  # what is sent comes with the last message of the handshake
                await provider.until(lambda: provider.inflight == 2)
            peak = provider.peak
            provider.answer.set()
            await provider.until(lambda: provider.answered == 2)
            while len(statuses) < 2:  # noqa: ASYNC110 - they are on their way
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    assert peak == provider.peak == 1
    assert statuses == [200, 200]


LEARNS = Traits(concurrency=CAP, latency_mean_ns=200 * MS, latency_sigma_ns=40 * MS, latency_min_ns=100 * MS)


async def test_nodes_find_together_what_the_provider_takes(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3, LEARNS, cap="2..24") as fleet, trio.open_nursery() as nursery:
        for node in range(3):
            nursery.start_soon(fleet.load, node, 8)
        for node in range(3):
            await fleet.more(node, 60)
        nursery.cancel_scope.cancel()

    world = fleet.provider.world
    # Each for itself they are refused a quarter of what they send.
    assert world.refused <= 0.15 * world.attempts


async def get(proxy: Proxy, path: str) -> Any:
    transport = httpx2.AsyncHTTPTransport(uds=proxy.of("control_opened")[0]["socket"])
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENCE_S) as client:
        answer = await client.get(path)
        return answer.json() if "json" in answer.headers["content-type"] else answer.text


async def when(proxy: Proxy, path: str, holds: Callable[[Any], bool]) -> Any:
    """Return the first answer of which something is true."""
    with trio.fail_after(PATIENCE_S):
        while not holds(answer := await get(proxy, path)):  # noqa: ASYNC110 - it is another process
            await trio.sleep(0.05)
    return answer


async def status_when(proxy: Proxy, holds: Callable[[Any], bool]) -> Any:
    """Return the first status of which something is true."""
    return await when(proxy, "/v1/status", holds)


def states(status: Any) -> dict[str, str]:
    return {one["name"]: one["state"] for one in status["nodes"]}


async def test_every_node_shows_all_nodes_their_shares_and_their_policies(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3) as fleet, trio.open_nursery() as nursery:
        for node in range(3):
            nursery.start_soon(fleet.load, node, 8)
        for node in range(3):
            await fleet.more(node, 10)
        first = fleet.proxies[0]
        shared = await status_when(first, lambda found: all(one["policy"] for one in found["nodes"]))
        fleet.policies[2].write_text(fleet.policies[2].read_text() + "lane batch { max 1 }\n")
        fleet.proxies[2].signal(signal.SIGHUP)
        differing = await status_when(first, lambda found: any(one["kind"] == "policies" for one in found["notices"]))
        # A node that gets no CPU for a while is silent, and alive again after it.
        metrics = await when(first, "/metrics", lambda text: 'hivemind_nodes{state="alive"} 3.0' in text)
        apart = await status_when(fleet.proxies[2], lambda found: bool(found["counted_by_each"]))
        _, shown, _ = await command(fleet.runtime, "status", "--policy", f"{fleet.policies[2]}")
        fleet.proxies[1].signal(signal.SIGKILL)
        await fleet.proxies[1].ended()
        silent = await status_when(first, lambda found: states(found).get("n1") == "silent")
        fleet.proxies[2].signal(signal.SIGTERM)
        await fleet.proxies[2].ended()
        left = await status_when(first, lambda found: "n2" not in states(found))
        await fleet.redis.stop()
        away = await status_when(first, lambda found: states(found).get("n1") == "unknown")
        nursery.cancel_scope.cancel()

    assert [one["name"] for one in shared["nodes"]] == ["n0", "n1", "n2"]
    assert [one["own"] for one in shared["nodes"]] == [True, False, False]
    assert len({one["policy"] for one in shared["nodes"]}) == 1  # each has a file of its own
    assert set(states(shared).values()) == {"alive"}
    assert not shared["notices"]
    shares = [one["shares"][0] for one in shared["nodes"]]
    assert {one["provider"] for one in shares} == {"sim"}
    assert sum(one["share"] for one in shares) <= CAP
    assert sum(one["leads"] for one in shares) == 1
    (notice,) = [one["text"] for one in differing["notices"] if one["kind"] == "policies"]
    assert f"{shared['policy']['hash'][:8]} at n0, n1" in notice
    assert "at n2" in notice
    assert "hivemind_node_policies 2.0" in metrics
    assert "hivemind_shared_store_reachable 1.0" in metrics
    assert re.search(r'^hivemind_node_share{provider="sim"} [1-6]\.0$', metrics, re.MULTILINE)
    assert any("`n1` has been silent" in one["text"] for one in silent["notices"])
    assert states(left)["n0"] == "alive"
    assert away["notices"][0]["kind"] == "store"
    assert (shared["counted_by_each"], apart["counted_by_each"]) == ("", "`max` of lanes")
    assert "each of them counts `max` of lanes for itself" in shown


async def test_log_and_status_say_why_an_emptied_store_grants_nothing(tmp_path: Path) -> None:
    def of_the_store(status: Any) -> list[str]:
        return [one["text"] for one in status["notices"] if one["kind"] == "store"]

    async with nodes(tmp_path, 2) as fleet:
        first = fleet.proxies[0]
        await first.says("shared_store_learned")  # it was empty at the start
        assert [one["longest_s"] for one in first.of("shared_store_learning")] == [1.75]
        await fleet.redis.send("ACL", "SETUSER", "default", "-pubsub|channels")
        await fleet.redis.send("FLUSHALL")
        blind = await first.says("shared_store_blind")
        (notice,) = of_the_store(await status_when(first, lambda found: bool(of_the_store(found))))
        await fleet.redis.send("ACL", "SETUSER", "default", "+@all")
        await first.says("shared_store_learned", 2)
        await status_when(first, lambda found: not of_the_store(found))

    assert blind["longest_s"] == 4
    assert "+pubsub|channels" in blind["help"]
    assert notice.endswith(f"for `lease`: {blind['help']}")
