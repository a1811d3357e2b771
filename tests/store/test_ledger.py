"""The ledger between scheduler and disk: what is noted at once, what is waited for, and what a full disk does."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from hivemind_trio.policy import Measure, Per
from hivemind_trio.scheduler import (
    AccountKey,
    CallId,
    CreditDrawn,
    Event,
    LedgerOpened,
    LedgerWritable,
)
from hivemind_trio.store import Ledger, MemoryStore, Restored, writing
from hivemind_trio.store.state import ledger as ledger_module
from hivemind_trio.store.state.interface import Claim, Entry, Learned, Spent

S = 1_000_000_000
NOW = 1_800_000_000 * S
PATIENCE_S = 120
"""For a thread; only a test that would otherwise hang for ever meets it."""

KEY = AccountKey("team", Per.ALL, "", Measure.REQUESTS, 64 * S, False)
EMPTY = Restored(spends={}, charges=(), learned={}, runs=0)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread writes, so no clock can jump."""
    for name in ("FOLD_S", "LEARN_S", "AGAIN_S"):
        monkeypatch.setattr(ledger_module, name, 0.005)


async def until(holds: Callable[[], object]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what a thread does has no event
            await trio.sleep(0.002)


@attrs.define(eq=False)
class Disk:
    """A store whose disk is as it is told to be."""

    full: bool = False
    refused: int = 0
    log: list[Entry] = attrs.field(factory=list)
    drawn: list[tuple[AccountKey, int]] = attrs.field(factory=list)
    folded: int = 0
    learned: list[Learned] = attrs.field(factory=list)
    said_bye: bool = False

    def _check(self) -> None:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")

    def append(self, entry: Entry) -> None:
        if self.full:
            self.refused += 1
            raise OSError(28, "No space left on device")
        self.log.append(entry)

    def draw(self, draws: Sequence[tuple[AccountKey, int]]) -> None:
        self._check()
        self.drawn += draws

    def rotate(self) -> object | None:
        return len(self.log) if len(self.log) > self.folded else None

    def fold(self, batch: object) -> None:
        self._check()
        assert isinstance(batch, int)
        self.folded = batch

    def learn(self, learned: Learned, wall_ns: int) -> None:
        self._check()
        self.learned.append(learned)

    def rename(self, names: object) -> None:
        self._check()

    def join(self, node: str, epoch: int) -> None:
        self._check()

    def bye(self) -> None:
        self._check()
        self.said_bye = True


@attrs.define(eq=False)
class Place:
    disk: Disk
    ledger: Ledger
    posted: list[Event]
    trouble: list[str]
    hints: dict[tuple[str, str], str]


@asynccontextmanager
async def opened() -> AsyncIterator[Place]:
    disk, posted, trouble = Disk(), list[Event](), list[str]()
    hints: dict[tuple[str, str], str] = {}
    ledger = Ledger(
        disk,
        post=posted.append,
        left_ns=lambda window: window.length_ns,
        learned=lambda: dict(hints),
        on_trouble=trouble.append,
        wall_ns=lambda: NOW,
    )
    ledger.open(EMPTY)
    async with writing(ledger):
        yield Place(disk, ledger, posted, trouble, hints)


async def test_entries_are_with_the_store_before_the_call_goes_on() -> None:
    async with opened() as place:
        place.ledger.claim(CallId(1), ((KEY, 3),))
        place.ledger.spend(CallId(1), ((KEY, 2),))

        assert place.disk.log == [Claim(1, NOW, ((KEY, 3),)), Spent(1, ((KEY, NOW + S, 2),))]
        assert place.posted == [LedgerOpened(())]


async def test_what_an_operator_changes_is_noted_in_the_slices_of_its_age() -> None:
    async with opened() as place:
        place.ledger.correct(KEY, ((0, -5), (0, 2)))

        assert place.disk.log == [Spent(0, ((KEY, NOW + S, -3),))]


async def test_a_chunk_is_credited_when_it_is_on_the_disk() -> None:
    async with opened() as place:
        place.ledger.draw(KEY, 100)
        assert place.posted[1:] == []
        await until(lambda: place.posted[1:])

        assert place.disk.drawn == [(KEY, 100)]
        assert place.posted[1:] == [CreditDrawn(KEY, 100)]


async def test_entries_are_folded_within_seconds_and_at_the_end() -> None:
    async with opened() as place:
        place.ledger.claim(CallId(1), ((KEY, 3),))
        await until(lambda: place.disk.folded == 1)
        place.ledger.spend(CallId(1), ((KEY, 2),))
    assert place.disk.folded == 2
    assert place.disk.said_bye


async def test_hints_are_written_when_they_have_changed_and_at_the_end() -> None:
    async with opened() as place:
        place.hints["a", "limit"] = "8"
        await until(lambda: place.disk.learned == [{("a", "limit"): "8"}])
        place.hints["b", "limit"] = "1"
    assert place.disk.learned[1:] == [{("b", "limit"): "1"}]


async def test_a_full_disk_is_said_once_and_nothing_is_lost() -> None:
    async with opened() as place:
        place.disk.full = True
        place.ledger.claim(CallId(1), ((KEY, 3),))
        place.ledger.draw(KEY, 100)
        place.ledger.spend(CallId(1), ((KEY, 2),))
        await until(lambda: place.disk.refused > 5)
        assert place.posted[1:] == [LedgerWritable(False)]
        assert place.trouble == ["[Errno 28] No space left on device"]
        place.disk.full = False
        await until(lambda: len(place.posted) == 4)

        assert place.disk.log == [Claim(1, NOW, ((KEY, 3),)), Spent(1, ((KEY, NOW + S, 2),))]
        assert sorted(map(str, place.posted[2:])) == sorted(map(str, [CreditDrawn(KEY, 100), LedgerWritable(True)]))
        assert place.trouble[1:] == [""]


async def test_hints_that_a_full_disk_did_not_take_are_written_later_and_the_trouble_lasts_until_then() -> None:
    async with opened() as place:
        place.disk.full = True
        place.hints["a", "limit"] = "8"
        await until(lambda: place.trouble)
        await trio.sleep(0.1)  # several rounds with nothing else to write
        troubles = list(place.trouble)

        place.disk.full = False
        await until(lambda: place.disk.learned)
        await until(lambda: place.trouble[-1] == "")

    assert troubles == ["database or disk is full"]
    assert place.disk.learned == [{("a", "limit"): "8"}]


async def test_a_chunk_that_another_process_could_not_be_given_is_trouble_until_one_can() -> None:
    async with opened() as place:
        place.disk.full = True
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError):
                await place.ledger.draw_now([(KEY, 5)])
            await trio.sleep(0.05)
        troubles = list(place.trouble)

        place.disk.full = False
        await place.ledger.draw_now([(KEY, 5)])
        await until(lambda: place.trouble[-1] == "")

    assert troubles == ["database or disk is full"]


async def test_trouble_of_another_process_is_over_once_anything_is_written() -> None:
    async with opened() as place:
        place.disk.full = True
        with pytest.raises(sqlite3.OperationalError):
            await place.ledger.draw_now([(KEY, 5)])
        await trio.sleep(0.05)
        assert place.trouble == ["database or disk is full"], "a round that writes nothing says nothing"

        place.disk.full = False
        place.hints["a", "limit"] = "8"
        await until(lambda: place.trouble[-1] == "")


async def test_a_disk_that_is_full_at_the_end_ends_the_process_all_the_same() -> None:
    async with opened() as place:
        place.disk.full = True
        place.ledger.claim(CallId(1), ((KEY, 3),))
    assert not place.disk.said_bye
    assert len(place.trouble) == 1


async def test_what_was_spent_before_is_posted_by_its_age() -> None:
    posted = list[Event]()
    ledger = Ledger(
        MemoryStore(),
        post=posted.append,
        left_ns=lambda window: window.length_ns,
        learned=dict,
        on_trouble=pytest.fail,
        wall_ns=lambda: NOW,
    )
    restored = attrs.evolve(EMPTY, spends={KEY: ((NOW - 5 * S, 7), (NOW + S, 8))})

    ledger.open(restored)

    (event,) = posted
    assert isinstance(event, LedgerOpened)
    (account,) = event.accounts
    assert account.key == KEY
    assert account.spent == ((-5 * S, 7), (S, 8))
