"""What is noted is on the disk soon, whole and in order, whatever the disk does meanwhile."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Outcome, Reason, RecordedCall, Request
from hivemind_trio.model.addresses import LOOPBACK, address_number
from hivemind_trio.proxy import CallRecord
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Circuit,
    Finish,
    LimitChanged,
    PolicyLoaded,
    Reject,
    SessionFacts,
    TimePassed,
    Unretried,
)
from hivemind_trio.store import (
    CallFilter,
    Journal,
    JournalBacklog,
    JournalError,
    join_journal,
    open_journal,
    read_journal,
)
from hivemind_trio.store.journal import reader, writer
from hivemind_trio.store.journal.journal_file import JournalFile
from hivemind_trio.store.journal.rows import HEADER_SETS_MAX, Entry, Scribe
from tests.support.policies import compiled

from .drawn import calls
from .written import CALL, MS, TWICE, answered, moved, tell

PATIENCE_S = 120
"""For a disk; only a test that would otherwise hang for ever meets it."""


def at(path: Path) -> str:
    return str(path / "team.journal")


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - another process's view of the disk has no event
            await trio.sleep(0.005)


@attrs.define
class Counted:
    """A function that is counted."""

    of: Callable[[Sequence[Entry]], None]
    count: int = 0

    def __call__(self, entries: Sequence[Entry]) -> None:
        self.count += 1
        self.of(entries)


def quiet(why: str) -> None:
    raise AssertionError(why)


async def written(path: str, told: list[RecordedCall]) -> None:
    async with open_journal(path, on_trouble=quiet) as journal:
        reads = {f"header.{name}" for call in told for name in call.request.headers}
        journal.began("0", "hash", 0, reads | {f"meta.{name}" for call in told for name in call.request.meta})
        for number, call in enumerate(told, start=1):
            tell(journal, call, number)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(told=calls())
def test_what_is_read_is_what_was_told(told: list[RecordedCall], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = at(tmp_path_factory.mktemp("journal"))

    trio.run(written, path, told)

    assert list(read_journal(path)) == told


async def test_it_is_on_the_disk_while_the_proxy_goes_on(tmp_path: Path) -> None:
    path = at(tmp_path)

    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0)
        tell(journal, CALL, 1)
        await until(lambda: len(read_journal(path)) == 1)
        tell(journal, moved(CALL, MS), 2)
        await until(lambda: list(read_journal(path)) == [CALL, moved(CALL, MS)])


async def test_many_are_written_in_order_and_none_is_lost_at_the_end(tmp_path: Path) -> None:
    path = at(tmp_path)
    told = [moved(CALL, number * MS) for number in range(700)]

    await written(path, told)

    assert list(read_journal(path)) == told


async def test_what_nothing_came_of_is_not_noted(tmp_path: Path) -> None:
    async with open_journal(at(tmp_path), on_trouble=quiet) as journal:
        journal.record(1, TimePassed(), ())
        adapted = LimitChanged(provider="p", limit=1, circuit=Circuit.CLOSED, because=None)
        journal.record(1, TimePassed(), (adapted,))

        assert journal.unwritten == 1


async def test_a_session_that_ends_in_order_says_so_and_the_next_one_is_added(tmp_path: Path) -> None:
    path = at(tmp_path)
    for wall_ns in (10**18, 10**18 + 3_600 * 10**9):
        async with open_journal(path, on_trouble=quiet, wall_ns=partial(int, wall_ns)) as journal:
            journal.began("0", "hash", 0)
            tell(journal, CALL, 1)

    with closing(sqlite3.connect(path)) as database:
        sessions = database.execute("SELECT session, began_wall_ns, ended_ns FROM sessions").fetchall()
    assert sessions == [(1, 10**18, CALL.ended_ns), (2, 10**18 + 3_600 * 10**9, CALL.ended_ns)]
    assert list(read_journal(path)) == [CALL, moved(CALL, 3_600 * 10**9)]


async def test_a_clock_that_was_put_back_puts_no_session_before_another(tmp_path: Path) -> None:
    path = at(tmp_path)
    for wall_ns in (10**18, 10**17):
        async with open_journal(path, on_trouble=quiet, wall_ns=partial(int, wall_ns)) as journal:
            journal.began("0", "hash", 0)
            tell(journal, CALL, 1)

    assert list(read_journal(path)) == [CALL, moved(CALL, CALL.ended_ns or 0)]


@attrs.define
class Clock:
    """The clock on the wall."""

    now_ns: int = 0

    def __call__(self) -> int:
        return self.now_ns


async def timed(path: str, began_ns: int, arrivals: Sequence[int]) -> None:
    """Write a session with calls that arrive so long after it began."""
    clock = Clock(began_ns)
    async with open_journal(path, on_trouble=quiet, wall_ns=clock) as journal:
        journal.began("0", "hash", 0)
        for number, arrived_ns in enumerate(arrivals, start=1):
            clock.now_ns = began_ns + arrived_ns
            tell(journal, moved(CALL, arrived_ns), number)


HOUR = 3_600 * 10**9


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(sessions=st.lists(st.lists(st.integers(0, 50), min_size=2, max_size=6).map(sorted), min_size=1, max_size=3))
def test_the_calls_of_a_time_are_read_as_from_the_whole_journal(
    sessions: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = at(tmp_path_factory.mktemp("journal"))
    walls = []
    for place, arrivals_s in enumerate(sessions):
        began_ns, arrivals = 10**18 + place * HOUR, [one * 10**9 for one in arrivals_s]
        trio.run(timed, path, began_ns, arrivals)
        walls += [began_ns + one for one in arrivals]
    assert [one.arrived_ns for one in read_journal(path)] == [one - walls[0] for one in walls]
    for since_ns, until_ns, newest in product((walls[0], walls[1], walls[-1] + 1), (walls[-1], 1 << 62), (None, 1, 3)):
        wanted = [one for one in walls if since_ns <= one < until_ns]
        wanted = wanted[-newest if newest is not None else 0 :]

        found = read_journal(path, CallFilter(since_ns=since_ns, until_ns=until_ns, newest=newest))

        assert list(found) == [moved(CALL, one - wanted[0]) for one in wanted]


async def test_sessions_of_workers_are_of_the_same_time(tmp_path: Path) -> None:
    path, clock = at(tmp_path), Clock(10**18)
    async with open_journal(path, on_trouble=quiet, wall_ns=clock) as first:
        first.began("0", "hash", 0)
        clock.now_ns += 10**9
        async with join_journal(path, 2, on_trouble=quiet, wall_ns=clock) as second:
            second.began("0", "hash", 0)
            for number, journal in enumerate((second, first, second), start=1):
                at_ns = number * HOUR - (10**9 if journal is second else 0)
                clock.now_ns = 10**18 + number * HOUR
                tell(journal, moved(CALL, at_ns), number)
                await until(lambda: not first.unwritten and not second.unwritten)

    assert list(read_journal(path)) == [CALL, moved(CALL, HOUR), moved(CALL, 2 * HOUR)]
    late = CallFilter(since_ns=10**18 + 2 * HOUR)
    assert list(read_journal(path, late)) == [CALL, moved(CALL, HOUR)]


# ---- a disk that does not do as it should ----


@pytest.mark.slow
async def test_a_full_disk_is_said_once_and_what_it_kept_out_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "AGAIN_S", 0.001)
    path, said = at(tmp_path), list[str]()
    told = [moved(TWICE if number % 2 else CALL, number * MS) for number in range(400)]

    async with open_journal(path, on_trouble=said.append) as journal:
        journal.began("0", "hash", 0)
        tried = Counted(journal.commit)
        monkeypatch.setattr(journal, "commit", tried)
        database = journal.file.database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        for number, call in enumerate(told, start=1):
            tell(journal, call, number)
            if number == 50:
                await until(lambda: bool(said))
        await until(lambda: tried.count >= 4)
        assert said == ["database or disk is full"]
        database.execute("PRAGMA max_page_count = 1000000")

    assert said == ["database or disk is full", ""]
    assert list(read_journal(path)) == told
    with closing(sqlite3.connect(path)) as read:
        lost = read.execute("SELECT count(*) FROM grants WHERE decided NOT IN (SELECT decided FROM deciders)")
        assert lost.fetchone() == (0,)


def test_rows_are_written_all_or_none(tmp_path: Path) -> None:
    file = JournalFile.open(at(tmp_path))
    with pytest.raises(sqlite3.OperationalError):
        file.write({"policies": [(1, 0, "hash")], "departures": [(1,)]})
    file.write({"policies": [(1, 5, "hash")]})
    file.close(None)

    with closing(sqlite3.connect(at(tmp_path))) as database:
        assert database.execute("SELECT at_ns FROM policies").fetchall() == [(5,)]


async def test_what_is_lost_in_the_end_is_said(tmp_path: Path) -> None:
    path, said = at(tmp_path), list[str]()

    async with open_journal(path, on_trouble=said.append) as journal:
        journal.began("0", "hash", 0)
        await until(lambda: not journal.unwritten)
        (pages,) = journal.file.database.execute("PRAGMA page_count").fetchone()
        journal.file.database.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(1, 400):
            tell(journal, CALL, number)

    assert said[0] == "database or disk is full"
    assert "entries are lost" in said[-1]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT ended_ns FROM sessions").fetchall() == [(None,)]


async def test_an_end_that_takes_too_long_says_what_is_lost_and_lets_go_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CLOSE_S", 0)
    path, said = at(tmp_path), list[str]()

    async with open_journal(path, on_trouble=said.append) as journal:
        journal.began("0", "hash", 0)
        tell(journal, CALL, 1)
        noted = journal.unwritten

    assert said == [f"{noted} entries are lost: the end came before they could be written"]
    assert os.listdir(tmp_path) == ["team.journal"], "no log is left"


async def test_what_is_too_much_for_memory_is_counted_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "AGAIN_S", 0.001)
    path, said = at(tmp_path), list[str]()

    async with open_journal(path, on_trouble=said.append, behind=40) as journal:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            journal.file.database.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN IMMEDIATE")
            journal.began("0", "hash", 0)
            for number in range(1, 30):
                tell(journal, CALL, number)
            assert journal.unwritten == 40
            left_out = journal.dropped
            assert left_out
            await until(lambda: bool(said))
            behind = journal.backlog
            other.execute("ROLLBACK")
        await until(lambda: len(said) == 3)
        written = journal.backlog
        tell(journal, CALL, 30)

    assert said == ["database is locked", f"{left_out} entries were left out meanwhile, and are not in it", ""]
    assert len(read_journal(path)) == 11
    assert (behind.unwritten, behind.left_out, behind.error) == (40, left_out, "database is locked")
    assert behind.waits_s > 0
    assert written == JournalBacklog(unwritten=0, waits_s=0.0, left_out=left_out, error="")


# ---- the file ----


def unlinked(path: str) -> None:
    os.unlink(path)


def renamed(path: str) -> None:
    os.rename(path, f"{path}.old")


def replaced(path: str) -> None:
    Path(f"{path}.new").touch()
    os.replace(f"{path}.new", path)


def folder_renamed(path: str) -> None:
    folder = Path(path).parent
    folder.rename(f"{folder}.old")


def folder_unreadable(path: str) -> None:
    """Make the path fail with another error than that there is no such file, as a folder of another user does."""
    folder_renamed(path)
    Path(path).parent.symlink_to(Path(path).parent)


@pytest.mark.parametrize("act", [unlinked, renamed, replaced, folder_renamed, folder_unreadable])
async def test_a_file_that_was_deleted_or_moved_is_said(act: Callable[[str], object], tmp_path: Path) -> None:
    folder, links = tmp_path / "state", tmp_path / "links"
    folder.mkdir()
    links.mkdir()
    path, said = at(folder), list[str]()

    async with open_journal(path, on_trouble=said.append) as journal:
        journal.began("0", "hash", 0)
        await until(lambda: not journal.unwritten)
        os.link(path, links / "another-name.db")
        act(path)
        tell(journal, CALL, 1)
        await until(lambda: bool(said))

    assert said[0] == "the file was deleted or moved"


def counts(path: str) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [
            database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("calls", "grants", "ends", "answers")
        ]


@pytest.mark.slow
async def test_old_rows_are_deleted_and_the_others_are_not(tmp_path: Path) -> None:
    path, day_ns = at(tmp_path), 86_400 * 10**9
    for days in (0, 20, 40):
        wall_ns = 10**18 + days * day_ns
        async with open_journal(path, on_trouble=quiet, wall_ns=partial(int, wall_ns)) as journal:
            journal.began("0", "hash", 0)
            for number in range(1, 1_501):
                tell(journal, moved(CALL, number), number)
            if days == 40:
                await until(lambda: not journal.unwritten)
                assert counts(path) == [3_000] * 4, "a month, at the start"
                journal.retain(10 * day_ns, 10**9)
                await until(lambda: counts(path) == [1_500] * 4)
    assert len(read_journal(path)) == 1_500


@pytest.mark.slow
async def test_a_file_that_is_too_large_loses_its_oldest_rows(tmp_path: Path) -> None:
    path = at(tmp_path)
    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0)
        for number in range(1, 4_001):
            tell(journal, moved(CALL, number * MS), number)
        await until(lambda: not journal.unwritten)
        with closing(sqlite3.connect(path)) as database:
            pages, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        journal.retain(10**18, pages * size * 2 // 3)
        await until(lambda: counts(path)[0] <= 3_000)
    kept = read_journal(path)
    assert os.stat(path).st_size < pages * size * 4 // 5
    assert 1_000 < len(kept) <= 3_000
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT max(call) FROM calls").fetchone() == (4_000,)


@pytest.mark.slow
async def test_headers_are_kept_once_and_as_long_as_a_call_has_them(tmp_path: Path) -> None:
    """Of 4,000 calls half have the same headers, and each other one has its own."""
    path = at(tmp_path)
    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0)
        for number in range(1, 4_001):
            agent = f"claude-cli/{number}" if number % 2 else "claude-cli/2"
            request = attrs.evolve(CALL.request, headers={"user-agent": agent})
            tell(journal, moved(attrs.evolve(CALL, request=request), number * MS), number)
        await until(lambda: not journal.unwritten)
        with closing(sqlite3.connect(path)) as database:
            (sets,) = database.execute("SELECT count(*) FROM header_sets").fetchone()
            pages, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        journal.retain(10**18, pages * size // 2)
        await until(lambda: counts(path)[0] <= 2_000)
    kept = read_journal(path)
    with closing(sqlite3.connect(path)) as database:
        (left,) = database.execute("SELECT count(*) FROM header_sets").fetchone()
    assert 2_000 < sets < 2_010
    assert len(kept) > 500
    assert left < len(kept) // 2 + HEADER_SETS_MAX + 10
    agents = {call.request.headers["user-agent"] for call in kept}
    assert len(agents) == len(kept) // 2 + 1, "the first of those that are left is one of its own headers"


CHILD = """
import sys, trio
from hivemind_trio.store import open_journal
from tests.store.written import CALL, moved, tell, MS

async def main(path):
    async with open_journal(path, on_trouble=print) as journal:
        journal.began("0", "hash", 0)
        for number in range(1, 10_000):
            tell(journal, moved(CALL, number * MS), number)
            await trio.sleep(0.0005)
            if number % 20 == 0:
                print(number, flush=True)

trio.run(main, sys.argv[1])
"""


@pytest.mark.slow
def test_a_kill_loses_what_was_not_yet_written_and_nothing_before(tmp_path: Path) -> None:
    path = at(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, path], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    assert child.stdout is not None
    try:
        for line in child.stdout:
            seen = len(read_journal(path))  # while it is being written
            if seen and int(line) >= 60:
                break
    finally:
        child.kill()
        child.wait()
        child.stdout.close()

    found = read_journal(path)
    assert len(found) >= seen
    assert [call.request for call in found] == [CALL.request] * len(found)
    trio.run(written, path, [CALL])
    assert len(read_journal(path)) == len(found) + 1
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert [row[0] is None for row in database.execute("SELECT ended_ns FROM sessions")] == [True, False]


# ---- files that are none ----


async def opened(path: str) -> Journal:
    async with open_journal(path, on_trouble=quiet) as journal:
        return journal


async def test_two_do_not_write_one_journal(tmp_path: Path) -> None:
    path = at(tmp_path)
    async with open_journal(path, on_trouble=quiet):
        with pytest.raises(JournalError, match="another hivemind-trio is writing it"):
            await opened(path)
        with pytest.raises(JournalError, match="another"):
            await opened(path)
    assert (await opened(path)).session == 1, "nobody has said anything yet"
    assert os.listdir(tmp_path) == ["team.journal"]


async def test_a_journal_by_another_name_is_the_same_journal(tmp_path: Path) -> None:
    path, link = at(tmp_path), str(tmp_path / "link")
    os.symlink(path, link)

    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0)
        tell(journal, CALL, 1)
        with pytest.raises(JournalError, match="another hivemind-trio is writing it"):
            await opened(link)
        await until(lambda: read_journal(path) == (CALL,))
        assert read_journal(link) == (CALL,)


def text_file(path: Path) -> None:
    path.write_text("nothing of the kind" * 100)


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")


def newer(path: Path) -> None:
    trio.run(written, str(path), [CALL])
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 12")


def empty(path: Path) -> None:
    path.touch()


@pytest.mark.parametrize(
    ("make", "said", "can_be_written"),
    [
        (text_file, "not a journal", False),
        (other_database, "not a journal", False),
        (newer, "version 12, and this hivemind-trio knows up to 11", False),
        (Path.mkdir, "it is a folder|directory", False),
        (empty, "not a journal", True),
        (lambda _: None, "no such file", True),
    ],
    ids=["text", "other database", "newer", "folder", "empty", "missing"],
)
def test_what_is_no_journal_is_neither_read_nor_written_to(
    tmp_path: Path, make: Callable[[Path], None], said: str, can_be_written: bool
) -> None:
    path = tmp_path / "team.journal"
    make(path)
    before = path.read_bytes() if path.is_file() else None

    with pytest.raises(JournalError, match=said):
        read_journal(str(path))
    assert (path.read_bytes() if path.is_file() else None) == before
    if can_be_written:
        assert trio.run(opened, str(path)).session == 1
        assert read_journal(str(path)) == ()
    else:
        with pytest.raises(JournalError, match=f"{said}|cannot be written"):
            trio.run(opened, str(path))
        assert (path.read_bytes() if path.is_file() else None) == before


def test_a_folder_that_there_is_not_is_said(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no such folder"):
        trio.run(opened, str(tmp_path / "no" / "team.journal"))


def test_the_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    trio.run(written, at(tmp_path), [CALL])

    assert os.stat(at(tmp_path)).st_mode & 0o777 == 0o600


def test_reading_leaves_nothing_behind(tmp_path: Path) -> None:
    trio.run(written, at(tmp_path), [CALL])

    assert list(read_journal(at(tmp_path))) == [CALL]
    assert os.listdir(tmp_path) == ["team.journal"]


def test_what_begins_to_be_written_while_it_is_read_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.run(written, at(tmp_path), [CALL])
    modes: list[bool] = []
    real = reader.asked

    def reading(path: str, question: Callable[[sqlite3.Connection], object], *, still: bool) -> object:
        modes.append(still)
        found = real(path, question, still=still)
        Path(f"{path}-wal").touch()
        return found

    monkeypatch.setattr(reader, "asked", reading)

    assert list(read_journal(at(tmp_path))) == [CALL]
    assert modes == [True, False]


async def test_a_number_that_is_too_large_for_a_column_is_as_large_as_can_be(tmp_path: Path) -> None:
    path = at(tmp_path)
    request = Request(tokens_max_out=10**30, tokens_in=10**20, cost_microusd=10**40)

    most = (1 << 63) - 1
    refuse = Reject(
        call_id=CallId(1),
        treatment=None,
        reason=Reason.PROVIDER_SPENT,
        waited_ns=0,
        message="no",
        retry_after_ns=10**30,
    )
    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0)
        journal.record(0, CallArrived(Call(id=CallId(1), request=request, caller="me", patience_ns=10**30)), (refuse,))

    (call,) = read_journal(path)
    assert call.request.tokens_max_out == most
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT patience_ns FROM calls").fetchall() == [(most,)]
        assert database.execute("SELECT retry_after_ns FROM refusals").fetchall() == [(most,)]


async def test_a_call_has_the_facts_of_its_session(tmp_path: Path) -> None:
    path = at(tmp_path)
    known = SessionFacts(context=1_500, turns=2, cost=10**30, age_ns=MS)
    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0)
        for number, session in ((1, known), (2, None)):
            call = Call(id=CallId(number), request=Request(model="m"), caller="me", job="s")
            journal.record(0, CallArrived(call), (), session)

    assert [call.request.model for call in read_journal(path)] == ["m", "m"]
    with closing(sqlite3.connect(path)) as database:
        columns = "session_context, session_turns, session_cost_microusd, session_age_ns"
        rows = database.execute(f"SELECT {columns} FROM calls ORDER BY call").fetchall()
    assert rows == [(1_500, 2, (1 << 63) - 1, MS), (None, None, None, None)]


async def test_who_was_turned_away_before_it_was_a_call_is_in_the_journal(tmp_path: Path) -> None:
    path = at(tmp_path)
    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0)
        journal.over(7, answered(attrs.evolve(CALL, status=413, attempts=()), None))

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT call, status, at_ns FROM answers").fetchall() == [(None, 413, 7)]
    assert read_journal(path) == ()


async def test_it_says_which_policy_was_in_force_when(tmp_path: Path) -> None:
    path = at(tmp_path)
    program = compiled("provider anthropic { concurrency 2 }")
    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 3)
        journal.record(7, PolicyLoaded(program), ())

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM policies").fetchall() == [(1, 3, "hash"), (1, 7, program.hash)]


async def test_the_history_has_a_line_for_each_call(tmp_path: Path) -> None:
    path = at(tmp_path)
    wall_ns = 1_750_000_000 * 10**9
    async with open_journal(path, on_trouble=quiet, wall_ns=lambda: wall_ns) as journal:
        journal.began("0", "hash", 0)
        tell(journal, CALL, 1)

    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        (line,) = map(dict, database.execute("SELECT * FROM history"))
    assert line["utc"] == "2025-06-15 15:06:40"
    told = {name: line[name] for name in ("agent", "provider", "model", "waited_ms", "took_ms", "status", "tokens_out")}
    assert told == {
        "agent": "ci",
        "provider": "anthropic",
        "model": "claude-x",
        "waited_ms": 5,
        "took_ms": 100,
        "status": 200,
        "tokens_out": 70,
    }


async def test_a_journal_of_version_1_is_written_on(tmp_path: Path) -> None:
    path = at(tmp_path)
    await written(path, [CALL])
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "DROP VIEW history; DROP INDEX answers_named; DROP INDEX calls_at; ALTER TABLE answers DROP COLUMN lane; "
            "ALTER TABLE answers DROP COLUMN waited_ns; ALTER TABLE ends DROP COLUMN exact; "
            "ALTER TABLE ends RENAME COLUMN cost_microusd TO exact; UPDATE ends SET exact = 1; "
            "CREATE TABLE old AS SELECT session, began_wall_ns, version, ended_ns FROM sessions; "
            "DROP TABLE sessions; ALTER TABLE old RENAME TO sessions; "
            "UPDATE calls SET (headers, meta) = (SELECT headers, meta FROM header_sets AS s "
            "WHERE s.header_set = calls.header_set); ALTER TABLE calls DROP COLUMN header_set; DROP TABLE header_sets; "
            "DROP TABLE events; DROP TABLE policy_files; DROP TABLE plans; "
            "ALTER TABLE calls DROP COLUMN minute; ALTER TABLE calls DROP COLUMN date; "
            "ALTER TABLE calls DROP COLUMN session_context; ALTER TABLE calls DROP COLUMN session_turns; "
            "ALTER TABLE calls DROP COLUMN session_cost_microusd; ALTER TABLE calls DROP COLUMN session_age_ns; "
            "ALTER TABLE calls DROP COLUMN client_address; ALTER TABLE grants DROP COLUMN account; "
            "ALTER TABLE calls DROP COLUMN tokens_counted; ALTER TABLE calls DROP COLUMN counted_by; "
            "ALTER TABLE ends DROP COLUMN unretried; "
            "CREATE VIEW history AS SELECT 1; PRAGMA user_version = 1"
        )
    before = read_journal(path)

    await written(path, [CALL])

    assert before == (CALL,)
    assert len(read_journal(path)) == 2
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (11,)
        assert len(database.execute("SELECT lane, waited_ms FROM history").fetchall()) == 2


async def test_the_history_shows_the_lane_and_the_wait_of_a_caller_that_gave_up(tmp_path: Path) -> None:
    path = at(tmp_path)
    record = CallRecord(
        id="b-1",
        number=CallId(1),
        lane="batch",
        waited_ms=7_000,
        status=0,
        rejected=False,
        reason=Reason.PROVIDER_CONCURRENCY,
    )
    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0)
        journal.record(1, CallArrived(Call(id=CallId(1), request=CALL.request, caller="")), ())
        journal.record(2, CallCancelled(CallId(1)), ())
        journal.over(3, record)

    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT lane, waited_ms, reason FROM history").fetchall()
    assert found == [("batch", 7_000, "provider-concurrency")]


async def test_of_headers_metadata_and_addresses_those_are_kept_that_the_policy_of_the_moment_reads(
    tmp_path: Path,
) -> None:
    path = at(tmp_path)
    words = {"user-agent": "claude-cli/2", "x-team": "a", "x-odd": "b", "x-other": "c"}
    address = address_number("2001:db8::1")
    assert address is not None
    request = attrs.evolve(CALL.request, headers=words, meta={"job": "1", "x-odd": "2"}, client_address=address)
    call = attrs.evolve(CALL, request=request)
    program = compiled(
        'provider anthropic { }\nrule r when header.x-team == "a" or not meta.job == "1" { priority 2 }\n'
        'agent ci when header.x-odd ~ "b*" { }\nrule near when client.address == "::1" { priority 3 }\n'
    )
    async with open_journal(path, on_trouble=quiet) as journal:
        journal.began("0", "hash", 0, {"header.x-other", "model"})
        tell(journal, call, 1)
        journal.record(10**12, PolicyLoaded(program), ())
        tell(journal, moved(call, 10**12), 2)

    first, second = read_journal(path)
    assert (first.request.headers, first.request.meta) == ({"user-agent": "claude-cli/2", "x-other": "c"}, {})
    assert second.request.headers == {"user-agent": "claude-cli/2", "x-team": "a", "x-odd": "b"}
    assert second.request.meta == {"job": "1"}
    assert (first.request.client_address, second.request.client_address) == (LOOPBACK, address)


def test_an_attempt_that_was_the_last_is_kept_with_the_reason() -> None:
    scribe = Scribe(session=1, decided=0, header_set=0, salt=b"salt")
    ended = AttemptEnded(CallId(7), AttemptResult(outcome=Outcome.FAILED, status=500))

    rows = scribe.rows(
        [
            (1, 1, ended, [Finish(CallId(7), Unretried.BUDGET)]),
            (2, 2, ended, [Finish(CallId(8), Unretried.BUDGET)]),
            (3, 3, ended, []),
        ]
    )

    assert [row[-1] for row in rows["ends"]] == ["retry-budget", None, None]
