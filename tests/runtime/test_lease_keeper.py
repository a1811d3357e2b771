"""Leases on Trio's clock: told once they are on disk, ended in time, and kept over a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from hivemind_trio.policy import UNKNOWN_AGENT, Renames
from hivemind_trio.runtime import LeaseKeeper, LeaseWait, keeping_leases, renamed_leases
from hivemind_trio.runtime.lease_keeper import AGAIN_S
from hivemind_trio.scheduler import Lease, LeaseEnd, LeaseRefusal
from tests.support.policies import compiled

S = 10**9
POLICY = "provider anthropic { }\nresource gpu { lease 10m }\n"
WALL_NS = 1_800_000_000 * S


@attrs.define(eq=False)
class Disk:
    """A store that survives, and that may be slow or broken."""

    slow_s: float = 0.0
    broken: bool = False
    kept: dict[str, Lease] = attrs.field(factory=dict)
    fences: dict[str, int] = attrs.field(factory=dict)

    async def keep_leases(self, kept: Sequence[Lease], ended: Sequence[Lease]) -> None:
        await trio.sleep(self.slow_s)
        if self.broken:
            raise OSError(28, "no space")
        for lease in kept:
            self.kept[lease.id] = lease
        for lease in ended:
            self.kept.pop(lease.id, None)
        for lease in (*kept, *ended):
            self.fences[lease.resource] = max(self.fences.get(lease.resource, 0), lease.fence)


def now_ns() -> int:
    return round(trio.current_time() * S)


@asynccontextmanager
async def kept(disk: Disk | None, text: str = POLICY, **more: Any) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(
        compiled(text),
        now_ns=now_ns,
        wall_ns=lambda: WALL_NS + now_ns(),
        store=disk,
        restored=list(disk.kept.values()) if disk is not None else (),
        fences=dict(disk.fences) if disk is not None else {},
        **more,
    )
    async with keeping_leases(keeper):
        yield keeper


def ask(keeper: LeaseKeeper, caller: str = "a", resource: str = "gpu") -> LeaseWait:
    return keeper.ask(resource, agent=UNKNOWN_AGENT, caller=caller)


async def test_a_lease_is_told_once_it_is_on_disk(autojump_clock: trio.testing.MockClock) -> None:
    disk = Disk(slow_s=5)
    async with kept(disk) as keeper:
        wait = ask(keeper)
        await trio.sleep(4)
        assert not wait.news.is_set()
        await wait.news.wait()
        found = keeper.lease("gpu-1")

    assert found is not None
    assert wait.lease == found
    assert disk.fences == {"gpu": 1}
    assert disk.kept["gpu-1"].expires_ns == WALL_NS + found.expires_ns


async def test_a_free_lease_is_given_without_a_wait_though_it_is_written_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with kept(Disk(slow_s=2)) as keeper:
        first, second = ask(keeper), ask(keeper, "b")
        await keeper.decided(first)
        await keeper.decided(second)

        assert first.lease is not None
        assert not second.news.is_set()


async def test_a_full_disk_delays_leases_and_says_so_once(autojump_clock: trio.testing.MockClock) -> None:
    disk, told = Disk(broken=True), list[str]()
    async with kept(disk, on_trouble=told.append) as keeper:
        wait = ask(keeper)
        await trio.sleep(30)
        assert wait.lease is None
        disk.broken = False
        await wait.news.wait()
        await trio.testing.wait_all_tasks_blocked()

    assert told == ["[Errno 28] no space", ""]


async def test_leases_of_clients_that_give_up_do_not_add_up_while_the_disk_is_broken(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = Disk(broken=True)
    async with kept(disk) as keeper:
        for _ in range(200):
            wait = ask(keeper)
            await trio.sleep(2 * AGAIN_S)
            keeper.withdraw(wait)
        await trio.sleep(2 * AGAIN_S)
        unwritten = keeper.unwritten
        stays = ask(keeper)
        disk.broken = False
        await stays.news.wait()
        assert stays.lease is not None
        fence = stays.lease.fence

    assert unwritten <= 4
    assert fence == 201, "each lease had a higher fencing token"
    assert disk.fences == {"gpu": 201}
    assert list(disk.kept) == [stays.lease.id]


async def test_a_client_that_gives_up_frees_its_place_though_the_disk_is_broken(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = Disk(broken=True)
    async with kept(disk) as keeper:
        first, second = ask(keeper), ask(keeper, "b")
        await trio.sleep(1)
        assert keeper.before(second) == 0
        keeper.withdraw(first)
        assert keeper.before(second) is None, "it has its lease, which is to be written"
        disk.broken = False
        await second.news.wait()

        assert second.lease is not None


async def test_the_next_in_line_is_told_when_a_lease_expires(autojump_clock: trio.testing.MockClock) -> None:
    async with kept(None) as keeper:
        first, second = ask(keeper), ask(keeper, "b")
        assert (keeper.before(first), keeper.before(second)) == (None, 0)
        assert first.lease is not None
        watch = keeper.watch(first.lease.id)
        began_s = trio.current_time()
        await second.news.wait()

        assert trio.current_time() == began_s + 600
        assert watch.end is LeaseEnd.EXPIRED


async def test_a_renewal_moves_the_end(autojump_clock: trio.testing.MockClock) -> None:
    async with kept(Disk()) as keeper:
        wait = ask(keeper)
        await wait.news.wait()
        assert wait.lease is not None
        await trio.sleep(500)
        renewed = await keeper.renew(wait.lease.id)
        assert renewed is not None
        assert renewed.expires_ns == now_ns() + 600 * S
        await trio.sleep(601)
        assert await keeper.renew(wait.lease.id) is None


async def test_a_session_that_is_over_ends_its_lease_unless_another_has_taken_it_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with kept(None) as keeper:
        lease = ask(keeper).lease
        assert lease is not None
        first, second = keeper.watch(lease.id), keeper.watch(lease.id)
        keeper.session_over(first)
        assert keeper.lease(lease.id) is not None
        keeper.session_over(second)
        assert keeper.lease(lease.id) is None


async def test_a_restart_keeps_leases_and_no_session_ends_with_the_process(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = Disk()
    async with kept(disk) as keeper:
        wait = ask(keeper)
        await wait.news.wait()
        assert wait.lease is not None
        watch = keeper.watch(wait.lease.id)
        keeper.is_closing = True
        keeper.session_over(watch)
    await trio.sleep(100)
    async with kept(disk) as keeper:
        late = ask(keeper, "b")
        assert keeper.before(late) == 0
        held = keeper.lease(wait.lease.id)
        assert held is not None
        assert held.expires_ns == now_ns() + 500 * S
        await late.news.wait()
        assert late.lease is not None
        assert late.lease.fence == 2


async def test_a_fencing_token_is_given_once_though_its_lease_is_over_before_a_restart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = Disk()
    async with kept(disk) as keeper:
        first = ask(keeper)
        await first.news.wait()
        assert first.lease is not None
        keeper.release(first.lease.id)
    assert disk.kept == {}
    async with kept(disk) as keeper:
        second = ask(keeper, "b")
        await second.news.wait()
        assert second.lease is not None
        assert second.lease.fence == first.lease.fence + 1


async def test_who_gives_up_while_a_lease_is_written_keeps_none(autojump_clock: trio.testing.MockClock) -> None:
    disk = Disk(slow_s=5)
    async with kept(disk) as keeper:
        gone = ask(keeper)
        await trio.sleep(1)
        keeper.withdraw(gone)
        other = ask(keeper, "b")
        await other.news.wait()
        assert other.lease is not None
        assert other.lease.fence == 2


async def test_a_reload_refuses_those_who_wait_for_what_is_gone(autojump_clock: trio.testing.MockClock) -> None:
    async with kept(None) as keeper:
        ask(keeper)
        waits = ask(keeper, "b")
        keeper.load(compiled("provider anthropic { }\n"))
        await waits.news.wait()

        assert waits.refused is not None
        assert waits.refused.refusal is LeaseRefusal.REMOVED


def test_restored_leases_have_the_names_of_the_policy() -> None:
    text = "provider anthropic { }\nagent b was a { token env(A) }\nresource card was gpu { }\n"
    lease = Lease(
        id="gpu-1", resource="gpu", fence=1, agent="a", caller="a", purpose="", granted_ns=0, expires_ns=1, ttl_ns=1
    )
    (found,) = renamed_leases([lease], Renames.since_restart(compiled(text)))

    assert (found.id, found.resource, found.agent) == ("gpu-1", "card", "b")


async def test_a_broken_disk_is_owed_the_last_renewal_of_each_lease(autojump_clock: object) -> None:
    disk = Disk()
    async with kept(disk) as keeper:
        first, second = ask(keeper, "a"), ask(keeper, "b")
        await first.news.wait()
        assert first.lease is not None
        disk.broken = True
        for _ in range(50):
            with trio.move_on_after(60):
                await keeper.renew(first.lease.id)
        owed = keeper.unwritten
        disk.broken = False
        renewed = await keeper.renew(first.lease.id)

    assert owed <= 3
    assert renewed is not None
    assert disk.kept[first.lease.id].expires_ns == renewed.expires_ns + WALL_NS
    assert second.lease is None
