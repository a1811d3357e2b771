"""State that survives: one suite for every store, and what only a disk can do."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from hivemind_trio.policy import Measure, Per
from hivemind_trio.scheduler import AccountKey, Lease
from hivemind_trio.store import MemoryStore, Restored, SqliteStore, StateError
from hivemind_trio.store.state.entry_log import EntryLog, read_entries
from hivemind_trio.store.state.interface import (
    CORRECTION,
    Claim,
    Spent,
    StateStore,
    account_of,
    account_text,
    counts_still,
    slot_ns,
)
from hivemind_trio.store.state.sqlite_store import StateError as Error

S = 1_000_000_000
DAY = 86_400 * S
NOW = 1_800_000_000 * S

MONEY = AccountKey("team", Per.ALL, "", Measure.COST, DAY, True)
SLIDES = AccountKey("team", Per.AGENT, 'True "ü', Measure.REQUESTS, 3_600 * S, False)
OTHER = AccountKey("other", Per.ALL, "", Measure.TOKENS, DAY, False)
ACCOUNTS = (MONEY, SLIDES, OTHER)
WITHOUT_LEASES = "DROP TABLE leases; DROP TABLE fences;"


def left(account: AccountKey) -> int:
    return DAY // 2


class Reopened(Protocol):
    """A store and its restart."""

    @property
    def store(self) -> StateStore: ...

    def restart(self, wall_ns: int, boot: str = "boot") -> Restored: ...


@attrs.define(eq=False)
class InMemory:
    store: MemoryStore = attrs.field(factory=MemoryStore)

    def restart(self, wall_ns: int, boot: str = "boot") -> Restored:
        return self.store.reopen(wall_ns, {account: left(account) for account in ACCOUNTS})


@attrs.define(eq=False)
class OnDisk:
    path: str
    opened: SqliteStore | None = None

    @property
    def store(self) -> SqliteStore:
        assert self.opened is not None
        return self.opened

    def restart(self, wall_ns: int, boot: str = "boot") -> Restored:
        """As after the end of a process, however it ended."""
        if self.opened is not None:
            self.opened.close()
        self.opened = SqliteStore.open(self.path, wall_ns, left, boot)
        return self.opened.restored


def stores(folder: Path) -> list[Reopened]:
    return [InMemory(), OnDisk(str(folder / "deep" / "state.db"))]


@pytest.fixture(params=[0, 1], ids=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Reopened:
    which: int = request.param
    found = stores(tmp_path)[which]
    found.restart(NOW)
    return found


def spent(account: AccountKey, amount: int, wall_ns: int = NOW, call: int = 1) -> Spent:
    return Spent(call, ((account, slot_ns(account, wall_ns, left(account)), amount),))


def totals(restored: Restored) -> Mapping[AccountKey, int]:
    return {account: sum(amount for _, amount in slots) for account, slots in restored.spends.items()}


# ---- every store ----


def test_what_was_spent_is_there_again_in_the_windows_that_have_not_ended(place: Reopened) -> None:
    for account in ACCOUNTS:
        place.store.append(spent(account, 5))
        place.store.append(spent(account, 7, NOW + 600 * S))

    assert totals(place.restart(NOW + 900 * S)) == dict.fromkeys(ACCOUNTS, 12)
    assert totals(place.restart(NOW + 3_600 * S + 300 * S)) == {MONEY: 12, SLIDES: 7, OTHER: 12}
    assert totals(place.restart(NOW + DAY // 2 + 601 * S)) == {OTHER: 12}
    assert totals(place.restart(NOW + 3 * DAY)) == {}


def test_what_an_operator_takes_back_stays_so(place: Reopened) -> None:
    for account in ACCOUNTS:
        place.store.append(spent(account, 5))
        place.store.append(spent(account, -3, call=CORRECTION))

    assert totals(place.restart(NOW + S)) == dict.fromkeys(ACCOUNTS, 2)
    place.store.append(spent(MONEY, -2, call=CORRECTION))
    assert totals(place.restart(NOW + 2 * S)).get(MONEY, 0) == 0


def test_a_call_in_flight_is_charged_its_claim_once(place: Reopened) -> None:
    place.store.append(Claim(1, NOW, ((MONEY, 100), (SLIDES, 1))))
    place.store.append(Claim(2, NOW, ((MONEY, 50),)))
    place.store.append(spent(MONEY, 30, call=2))

    restored = place.restart(NOW + S)
    assert totals(restored) == {MONEY: 130, SLIDES: 1}
    assert {(charge.account, charge.amount, charge.calls) for charge in restored.charges} == {
        (MONEY, 100, 1),
        (SLIDES, 1, 1),
    }
    again = place.restart(NOW + 2 * S)
    assert totals(again) == {MONEY: 130, SLIDES: 1}
    assert (again.charges, again.runs) == ((), 2)


def test_credit_that_nobody_used_comes_back(place: Reopened) -> None:
    place.store.draw([(MONEY, 1_000), (SLIDES, 4)])
    place.store.append(Claim(1, NOW, ((MONEY, 100),)))

    assert totals(place.restart(NOW + S)) == {MONEY: 100}


def test_a_clock_that_was_put_back_ends_no_window_and_one_that_jumps_ends_it(place: Reopened) -> None:
    for account in ACCOUNTS:
        place.store.append(spent(account, 5))

    assert totals(place.restart(NOW - 40 * DAY)) == dict.fromkeys(ACCOUNTS, 5)


def test_a_window_that_was_over_at_a_restart_stays_over_when_the_clock_is_put_back(place: Reopened) -> None:
    for account in ACCOUNTS:
        place.store.append(spent(account, 5))
    place.restart(NOW + 3 * DAY)

    assert totals(place.restart(NOW)) == {}


def test_accounts_may_change_names_with_each_other(place: Reopened) -> None:
    place.store.append(spent(MONEY, 5))
    place.store.append(spent(OTHER, 9))
    if (batch := place.store.rotate()) is not None:
        place.store.fold(batch)
    place.store.rename({MONEY: MONEY._replace(budget="new"), OTHER: OTHER._replace(budget="team")})

    assert totals(place.restart(NOW)) == {MONEY._replace(budget="new"): 5, OTHER._replace(budget="team"): 9}


def test_hints_come_back_with_their_time(place: Reopened) -> None:
    place.store.learn({("a", "limit"): "8"}, NOW)
    place.store.learn({("a", "limit"): "9", ("b", "limit"): "1"}, NOW + S)

    assert place.restart(NOW + 2 * S).learned == {("a", "limit"): ("9", NOW + S), ("b", "limit"): ("1", NOW + S)}


def test_an_end_in_order_leaves_the_claims_of_calls_that_were_cut_off(place: Reopened) -> None:
    place.store.draw([(MONEY, 1_000)])
    place.store.append(Claim(1, NOW, ((MONEY, 100),)))
    place.store.append(spent(MONEY, 3, call=2))
    place.store.bye()

    assert totals(place.restart(NOW, boot="another")) == {MONEY: 103}


class Alike(RuleBasedStateMachine):
    """A random script has the same outcome in every store, whenever either is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.memory, self.disk = InMemory(), OnDisk(str(Path(self.folder.name) / "state.db"))
        self.places: list[Reopened] = [self.memory, self.disk]
        self.now = NOW
        self.calls: list[int] = []
        self.next = 0
        self.batches: list[object] = []
        self.restart(0)

    @rule(amounts=st.lists(st.tuples(st.sampled_from(ACCOUNTS), st.integers(0, 10**15)), min_size=1, max_size=3))
    def claim(self, amounts: list[tuple[AccountKey, int]]) -> None:
        self.next += 1
        self.calls.append(self.next)
        for place in self.places:
            place.store.append(Claim(self.next, self.now, tuple(dict(amounts).items())))

    @rule(which=st.integers(0, 9), account=st.sampled_from(ACCOUNTS), amount=st.integers(0, 10**15))
    def spend(self, which: int, account: AccountKey, amount: int) -> None:
        call = self.calls.pop(which % len(self.calls)) if self.calls else 0
        for place in self.places:
            place.store.append(spent(account, amount, self.now, call))

    @rule(account=st.sampled_from(ACCOUNTS), amount=st.integers(1, 10**15))
    def draw(self, account: AccountKey, amount: int) -> None:
        for place in self.places:
            place.store.draw([(account, amount)])

    @rule(folds=st.booleans())
    def fold(self, folds: bool) -> None:
        """Folding may fail, and is then tried again before a later batch is."""
        batch = self.disk.store.rotate()
        if batch is not None:
            self.batches.append(batch)
        while folds and self.batches:
            self.disk.store.fold(self.batches.pop(0))

    @rule(seconds=st.integers(-7_200, 50_000))
    def wait(self, seconds: int) -> None:
        self.now += seconds * S

    @rule(seconds=st.integers(0, 10_000))
    def restart(self, seconds: int) -> None:
        self.now += seconds * S
        memory, disk = (place.restart(self.now) for place in self.places)
        assert totals(memory) == totals(disk)
        assert {(one.account, one.amount, one.calls) for one in memory.charges} == {
            (one.account, one.amount, one.calls) for one in disk.charges
        }
        assert memory.runs == disk.runs
        self.calls.clear()
        self.batches.clear()

    def teardown(self) -> None:
        self.disk.store.close()
        self.folder.cleanup()


TestAlike = pytest.mark.slow(Alike.TestCase)
TestAlike.settings = settings(max_examples=40, stateful_step_count=25)


@given(
    st.builds(
        AccountKey,
        st.text(),
        st.sampled_from(Per),
        st.text(),
        st.sampled_from(Measure),
        st.integers(1, 10**18),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "Europe/Paris"]),
        st.text(),
    )
)
def test_a_key_is_read_as_it_was_written(account: AccountKey) -> None:
    assert account_of(account_text(account)) == account


def test_a_key_of_the_first_version_is_read() -> None:
    text = '["each","agent","ci","cost",86400000000000,true]'

    account = account_of(text)

    assert account == AccountKey("each", Per.AGENT, "ci", Measure.COST, DAY, calendar=True)
    assert account_text(account) == text


@given(account=st.sampled_from(ACCOUNTS), wall_ns=st.integers(NOW, NOW + DAY), later=st.integers(0, 2 * DAY))
def test_a_spend_counts_for_its_window_and_hardly_longer(account: AccountKey, wall_ns: int, later: int) -> None:
    slot = slot_ns(account, wall_ns, left(account))
    counts = counts_still(account, slot, wall_ns + later)

    window_ns = left(account) if account.calendar else account.window_ns
    if later < window_ns - S:
        assert counts
    if later > window_ns + max(window_ns // 64, 1) + S:
        assert not counts


# ---- a disk ----


@pytest.fixture
def disk(tmp_path: Path) -> OnDisk:
    found = OnDisk(str(tmp_path / "state" / "state.db"))
    found.restart(NOW)
    return found


def test_a_machine_that_went_down_is_charged_the_credit_that_was_drawn(disk: OnDisk) -> None:
    disk.store.draw([(MONEY, 1_000)])
    disk.store.draw([(MONEY, 500)])
    disk.store.append(Claim(1, NOW, ((MONEY, 100),)))
    disk.store.append(spent(MONEY, 40, call=2))

    restored = disk.restart(NOW + S, boot="after the power came back")

    assert totals(restored) == {MONEY: 1_500}
    assert [(charge.amount, charge.calls) for charge in restored.charges] == [(1_460, 0)]


def test_what_an_operator_takes_back_settles_no_credit(disk: OnDisk) -> None:
    disk.store.draw([(MONEY, 1_000)])
    disk.store.append(spent(MONEY, 400))
    disk.store.append(spent(MONEY, -400, call=CORRECTION))
    disk.store.fold(disk.store.rotate())
    disk.store.append(spent(MONEY, 50))
    disk.store.append(spent(MONEY, -50, call=CORRECTION))

    restored = disk.restart(NOW + S, boot="after the power came back")

    assert [(charge.amount, charge.calls) for charge in restored.charges] == [(550, 0)]
    assert totals(restored) == {MONEY: 550}


def test_an_unknown_boot_is_taken_for_another(disk: OnDisk) -> None:
    disk.store.draw([(MONEY, 1_000)])

    assert totals(disk.restart(NOW + S, boot="")) == {MONEY: 1_000}


@pytest.mark.parametrize("cut", [0, 1, 10, 40])
def test_a_torn_line_is_no_entry_and_those_before_it_are(disk: OnDisk, cut: int) -> None:
    disk.store.append(spent(MONEY, 5))
    disk.store.append(spent(OTHER, 9))
    (log,) = Path(disk.path).parent.glob("*-log*")
    data = log.read_bytes()
    disk.store.close()
    log.write_bytes(data[: len(data) - cut])
    disk.opened = None

    assert totals(disk.restart(NOW)) == ({MONEY: 5, OTHER: 9} if not cut else {MONEY: 5})


def test_it_is_for_its_owner_alone(disk: OnDisk) -> None:
    disk.store.append(spent(MONEY, 5))
    folder = Path(disk.path).parent

    assert folder.stat().st_mode & 0o777 == 0o700
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_second_proxy_is_told_who_has_it(disk: OnDisk, tmp_path: Path, link: Callable[[str, str], None]) -> None:
    with pytest.raises(StateError, match=f"process {os.getpid()} is serving") as held:
        SqliteStore.open(disk.path, NOW, left)
    assert held.value.held
    link(disk.path, str(tmp_path / "again.db"))
    with pytest.raises(StateError, match="is serving"):
        SqliteStore.open(str(tmp_path / "again.db"), NOW, left)
    disk.store.append(spent(MONEY, 5))
    assert totals(disk.restart(NOW)) == {MONEY: 5}


@pytest.mark.parametrize("damage", [b"not SQLite at all" * 500, b"SQLite format 3\0" + b"\xff" * 5_000])
def test_a_damaged_file_is_moved_aside_with_its_log(disk: OnDisk, damage: bytes) -> None:
    disk.store.append(spent(MONEY, 5))
    disk.store.close()
    disk.opened = None
    Path(disk.path).write_bytes(damage)

    assert totals(disk.restart(NOW)) == {}
    assert disk.store.set_aside == f"{disk.path}.damaged-{NOW // S}"
    assert Path(disk.store.set_aside).read_bytes() == damage
    assert list(Path(disk.path).parent.glob("*.damaged-*-log*"))
    disk.store.append(spent(OTHER, 1))
    assert totals(disk.restart(NOW)) == {OTHER: 1}
    assert not disk.store.set_aside


def test_a_file_of_another_program_or_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "recipes.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(Error, match="a database of another program"):
        SqliteStore.open(str(path), NOW, left)

    SqliteStore.open(str(tmp_path / "new.db"), NOW, left).close()
    with closing(sqlite3.connect(tmp_path / "new.db")) as database:
        database.execute("PRAGMA user_version = 4")
    with pytest.raises(Error, match="version 4, and this hivemind-trio knows up to 3"):
        SqliteStore.open(str(tmp_path / "new.db"), NOW, left)


def fold(store: SqliteStore) -> None:
    batch = store.rotate()
    assert batch is not None
    store.fold(batch)


def test_what_a_killed_run_has_spent_in_all_is_kept_until_the_next_one_shares_budgets(tmp_path: Path) -> None:
    disk = OnDisk(str(tmp_path / "state.db"))
    disk.restart(NOW)
    disk.store.append(Spent(1, ((MONEY, NOW + DAY // 2, 99),)))  # before it shares with other nodes
    fold(disk.store)
    disk.store.join("n1", 7)
    disk.store.append(Claim(2, NOW, ((MONEY, 50),)))
    disk.store.append(Spent(2, ((MONEY, NOW + DAY // 2, 20),)))
    fold(disk.store)
    disk.store.append(Claim(3, NOW, ((MONEY, 50), (OTHER, 6))))
    disk.store.append(Spent(3, ((MONEY, NOW + DAY // 2, 1), (OTHER, NOW, 2))))
    disk.store.append(Spent(CORRECTION, ((MONEY, NOW + DAY // 2, 1_000),)))  # no call has spent that
    disk.store.append(Claim(4, NOW, ((MONEY, 400),)))

    for _ in range(2):  # one that is killed before it shares changes nothing
        restored = disk.restart(NOW)
        assert restored.shared_by == ("n1", 7)
        assert restored.settled == {MONEY: 421, OTHER: 2}

    disk.store.join("n1", 8)
    restored = disk.restart(NOW)
    assert restored.shared_by == ("n1", 8)
    assert restored.settled == {}


def test_after_a_loss_of_power_it_is_not_known_what_a_run_has_spent_in_all(tmp_path: Path) -> None:
    disk = OnDisk(str(tmp_path / "state.db"))
    disk.restart(NOW)
    disk.store.join("n1", 7)
    disk.store.append(Spent(2, ((MONEY, NOW + DAY // 2, 20),)))
    fold(disk.store)
    restored = disk.restart(NOW, "another boot")
    assert restored.shared_by is None
    assert restored.settled == {}


def test_a_file_of_the_first_version_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    SqliteStore.open(str(path), NOW, left).close()
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"{WITHOUT_LEASES} DROP TABLE shared; DROP TABLE settled; PRAGMA user_version = 1;")
    store = SqliteStore.open(str(path), NOW, left)
    store.join("n1", 7)
    store.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM shared").fetchall() == [("n1", 7)]


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Error, match="cannot be written") as error:
        SqliteStore.open(str(tmp_path / "file" / "state.db"), NOW, left)
    assert "store memory" in error.value.help


@pytest.mark.parametrize("act", [Path.unlink, lambda path: path.rename(f"{path}.old")], ids=["deleted", "moved"])
def test_a_file_that_was_deleted_or_moved_takes_nothing_more(act: Callable[[Path], object], disk: OnDisk) -> None:
    Path(f"{disk.path}.link").hardlink_to(disk.path)
    act(Path(disk.path))
    disk.store.rotate()

    with pytest.raises(OSError, match="deleted"):
        disk.store.append(spent(MONEY, 5))
    with pytest.raises(sqlite3.OperationalError, match="deleted"):
        disk.store.draw([(MONEY, 5)])


def test_half_a_line_of_a_full_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EntryLog.create(tmp_path / "log")
    log.append(spent(MONEY, 5))
    write = os.write

    def short(file: int, data: bytes) -> int:
        return write(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="No space left"):
        log.append(spent(MONEY, 6))
    monkeypatch.undo()
    log.append(spent(MONEY, 7))
    log.close()

    assert list(read_entries(tmp_path / "log")) == [spent(MONEY, 5), spent(MONEY, 7)]


def test_a_store_on_a_disk_that_has_become_read_only_closes(disk: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    disk.store.close()
    monkeypatch.undo()

    assert SqliteStore.open(disk.path, NOW, left).restored.spends == {}


# ---- leases ----


LEASE = Lease(
    id="gpu-3", resource="gpu", fence=3, agent="ci", caller="ci", purpose="grade", granted_ns=NOW,
    expires_ns=NOW + S, ttl_ns=S,
)  # fmt: skip


def test_leases_and_fencing_tokens_are_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    store = SqliteStore.open(path, NOW, left, "boot")
    ended = attrs.evolve(LEASE, id="gpu-2", fence=2)
    store.keep_leases([ended, LEASE], [])
    store.keep_leases([attrs.evolve(LEASE, expires_ns=NOW + 2 * S)], [ended])
    store.keep_leases([], [attrs.evolve(LEASE, id="port-9", resource="port", fence=9)])
    store.close()
    store = SqliteStore.open(path, NOW, left, "boot")
    restored = store.restored
    store.close()

    assert restored.leases == (attrs.evolve(LEASE, expires_ns=NOW + 2 * S),)
    assert restored.fences == {"gpu": 3, "port": 9}


def test_state_of_the_second_version_gets_tables_of_leases(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    SqliteStore.open(str(path), NOW, left, "boot").close()
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"{WITHOUT_LEASES} PRAGMA user_version = 2;")
    store = SqliteStore.open(str(path), NOW, left, "boot")
    store.keep_leases([LEASE], [])
    store.close()
    store = SqliteStore.open(str(path), NOW, left, "boot")
    found = store.restored.leases
    store.close()

    assert found == (LEASE,)
