"""The supervisor's ledger: the parts of all workers are the whole, whatever becomes of a process."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from hivemind_trio.policy import Measure, Per
from hivemind_trio.scheduler import AccountKey
from hivemind_trio.serve.workers.ledger import CHUNKS, SentState, SharedLedger
from hivemind_trio.serve.workers.setup import StateText
from hivemind_trio.store import Claim, Ledger, Spent, SqliteStore

HOUR_NS = 3_600_000_000_000
TEAM = AccountKey("team", Per.ALL, "", Measure.COST, HOUR_NS, False)
NOW_NS = 1_800_000_000_000_000_000


def opened(path: Path, wall_ns: int = NOW_NS) -> SqliteStore:
    return SqliteStore.open(f"{path}/state.db", wall_ns, lambda _: HOUR_NS)


def shared(store: SqliteStore) -> SharedLedger:
    ledger = Ledger(
        store,
        post=lambda _: None,
        left_ns=lambda _: HOUR_NS,
        learned=dict,
        on_trouble=lambda _: None,
        wall_ns=lambda: NOW_NS,
    )
    return SharedLedger(store, ledger, "worker-1")


def sent(ledger: SharedLedger, worker: str, sock: socket.socket) -> SentState:
    text = StateText.of(ledger.restored(worker, NOW_NS), b"")
    return SentState(
        restored=text.restored(),
        alias_key=b"",
        sock=sock,
        join_there=lambda node, epoch: ledger.join(worker, node, epoch),
        learn_there=lambda _: None,
    )


def slot(ledger: SharedLedger) -> int:
    return ledger.ledger.slot_ns(TEAM, NOW_NS)


async def test_a_worker_that_was_killed_is_charged_and_its_next_process_closes_its_credit(tmp_path: Path) -> None:
    store = opened(tmp_path)
    ledger = shared(store)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    async with trio.open_nursery() as nursery:
        reader = ledger.reader("worker-2", ours)
        charged: list[object] = []

        async def read() -> None:
            charged.append(await reader.run(lambda: NOW_NS))

        nursery.start_soon(read)
        worker = sent(ledger, "worker-2", theirs)
        worker.join("worker-2", 7)
        worker.append(Claim(1, NOW_NS, ((TEAM, 30),)))
        worker.append(Spent(1, ((TEAM, slot(ledger), 12),)))
        worker.append(Claim(2, NOW_NS, ((TEAM, 40),)))
        theirs.close()

    assert charged == [{TEAM: (40, 1)}]
    assert ledger.spent(TEAM, NOW_NS) == 52
    again = sent(ledger, "worker-2", ours).restored
    assert (again.shared_by, again.settled) == (("worker-2", 7), {TEAM: 52})
    assert again.spends == {TEAM: ((slot(ledger), 52),)}
    # The other workers have spent none of it: the store adds up what they report.
    assert sent(ledger, "worker-1", ours).restored.spends == {}
    store.bye()
    store.close()


def test_what_was_spent_before_the_start_is_one_workers(tmp_path: Path) -> None:
    first = opened(tmp_path)
    before = shared(first)
    before.note("worker-2", Spent(1, ((TEAM, slot(before), 9),)), NOW_NS)
    first.bye()
    first.close()
    store = opened(tmp_path, NOW_NS + 1)
    ledger = shared(store)
    parts = {name: ledger.restored(name, NOW_NS + 1).spends for name in ("worker-1", "worker-2")}
    assert parts == {"worker-1": {TEAM: ((slot(ledger), 9),)}, "worker-2": {}}
    ledger.note("worker-2", Spent(2, ((TEAM, slot(ledger), 5),)), NOW_NS)
    ledger.set_spent(TEAM, 11, NOW_NS)
    assert ledger.spent(TEAM, NOW_NS) == 11
    ledger.set_spent(TEAM, 20, NOW_NS)
    assert ledger.spent(TEAM, NOW_NS) == 20
    store.close()


async def test_a_loss_of_power_charges_the_credit_that_workers_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hivemind_trio.store.state.sqlite_store.boot_id", lambda: "one")
    store = opened(tmp_path)
    ledger = shared(store)
    await ledger.cover(TEAM, 80, 160)
    await ledger.cover(TEAM, 79, 160)  # durable already
    await ledger.cover(TEAM, 81, 160)
    ledger.note("worker-1", Spent(1, ((TEAM, slot(ledger), 25),)), NOW_NS)
    store.close()
    monkeypatch.setattr("hivemind_trio.store.state.sqlite_store.boot_id", lambda: "two")
    again = opened(tmp_path, NOW_NS + 1)
    assert sum(amount for _, amount in again.restored.spends[TEAM]) == 80 + 160 // CHUNKS
    again.close()
