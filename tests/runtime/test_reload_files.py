"""A policy's files change in all the ways in which files change. Real files, the real watch and the real clock: every
wait is for an event and bounded generously, and the poll is out of the way unless a test is about it.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
import watchfiles

from hivemind_trio.host import DiskFiles, Secrets, folders
from hivemind_trio.policy import Checked, Severity, check
from hivemind_trio.runtime import reload

from .desk import Desk, Read, reloading


@pytest.fixture(autouse=True)
def _no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "POLL_S", 3_600.0)


def text_of(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:  # it is not there
        return None


def read(*paths: Path) -> Read:
    return Read(tuple(map(text_of, paths)), tuple(dict.fromkeys(str(path.parent) for path in paths)))


def last(desk: Desk) -> tuple[str | None, ...] | None:
    return desk.applied[-1].texts if desk.applied else None


async def saved_as(desk: Desk, *texts: str) -> None:
    """Until the desk has taken these texts."""
    await desk.until(lambda: last(desk) == texts)


async def watched(desk: Desk, directory: Path) -> None:
    """Until the watch is certainly on: while it moves, everything is seen, because it reads once more when it is on.

    Three changes that are none to the policy, one after the other: the first may be seen by a reading that was due
    anyway, the next by the one that the watch begins with, the last by the watch alone.
    """
    for number in range(3):
        loads = desk.loads + 1
        (directory / "unrelated").write_text(str(number))
        await desk.until(partial(desk.has_loaded, loads))


# ---- ways to save a file ----


def rewritten(path: Path, text: str) -> None:
    path.write_text(text)


def renamed_over(path: Path, text: str) -> None:
    new = path.with_suffix(".tmp")
    new.write_text(text)
    new.replace(path)


def saved_by_vim(path: Path, text: str) -> None:
    """`backupcopy=no`: the old file becomes the backup, a new one is written, and the backup is deleted."""
    probe = path.with_name("4913")
    probe.touch()
    probe.unlink()
    backup = path.with_name(path.name + "~")
    path.rename(backup)
    path.write_text(text)
    backup.unlink()


def deleted_first(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def in_a_new_directory(path: Path, text: str) -> None:
    """As a deployment does: everything prepared beside, and two renames."""
    new, old = (path.parent.with_name(path.parent.name + each) for each in (".new", ".old"))
    new.mkdir()
    (new / path.name).write_text(text)
    path.parent.rename(old)
    new.rename(path.parent)
    shutil.rmtree(old)


def swapped_by_kubernetes(path: Path, text: str) -> None:
    """A ConfigMap's volume: `policy.hmp -> ..data/policy.hmp`, and `..data ->` a directory that is new each time."""
    data = path.with_name("..data")
    new = path.with_name(f"..{text}")
    new.mkdir()
    (new / path.name).write_text(text)
    old = data.resolve() if data.is_symlink() else None
    link = path.with_name("..data_tmp")
    link.symlink_to(new.name)
    link.replace(data)
    if not path.is_symlink():
        path.unlink()
        path.symlink_to(f"..data/{path.name}")
    if old is not None:
        shutil.rmtree(old)


@pytest.mark.slow
@pytest.mark.parametrize(
    "save",
    [rewritten, renamed_over, saved_by_vim, deleted_first, in_a_new_directory, swapped_by_kubernetes],
    ids=lambda save: save.__name__,
)
async def test_every_save_is_seen_however_it_is_made(tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    # One of the names that watchfiles ignores unless told otherwise; policies that ship with a package are there.
    path = tmp_path / ".venv" / "policy.hmp"
    path.parent.mkdir()
    path.write_text("zero")

    async with reloading(partial(read, path)) as desk:
        # More than once: a file that is watched itself goes blind after the first rename.
        for text in ("one", "two"):
            await trio.to_thread.run_sync(save, path, text)
            await saved_as(desk, text)
        await watched(desk, path.parent)
        await trio.to_thread.run_sync(save, path, "three")
        await saved_as(desk, "three")


@pytest.mark.slow
async def test_a_directory_replaced_by_its_like_is_watched_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "policy.hmp"
    path.parent.mkdir()
    path.write_text("zero")

    async with reloading(partial(read, path)) as desk:
        await watched(desk, path.parent)
        in_a_new_directory(path, "zero")
        await watched(desk, path.parent)
        path.write_text("one")
        await saved_as(desk, "one")


@pytest.mark.slow
async def test_a_policy_that_is_a_link_is_watched_where_it_is_written(tmp_path: Path) -> None:
    real = tmp_path / "git" / "policy.hmp"
    real.parent.mkdir()
    real.write_text("zero")
    path = tmp_path / "etc" / "policy.hmp"
    path.parent.mkdir()
    path.symlink_to(real)

    async with reloading(lambda: Read((text_of(path),), tuple(folders(str(path))))) as desk:
        await watched(desk, real.parent)
        real.write_text("one")
        await saved_as(desk, "one")


async def test_a_journal_beside_the_policy_is_no_reason_to_read_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: dict[str, int] = {}

    async def changes(*_: object, **__: object) -> AsyncIterator[set[tuple[watchfiles.Change, str]]]:
        yield set()  # the watch is on
        await desk.until(partial(desk.has_loaded, 1))
        for name in ("team", "team-wal", "team-log2"):
            yield {(watchfiles.Change.modified, f"{tmp_path / name}")}
            await trio.testing.wait_all_tasks_blocked(0.05)
            loads[name] = desk.loads
        yield {(watchfiles.Change.modified, f"{tmp_path / 'team.hmp'}")}
        await trio.sleep_forever()

    monkeypatch.setattr(watchfiles, "awatch", changes)
    monkeypatch.setattr(reload, "DEBOUNCE_S", 0)
    policy = tmp_path / "team.hmp"
    policy.write_text("one")
    async with reloading(partial(read, policy), own=(f"{tmp_path / 'team'}",)) as desk:
        await desk.until(partial(desk.has_loaded, 2))

    assert loads == {"team": 1, "team-wal": 1, "team-log2": 1}


@pytest.mark.slow
async def test_a_change_before_the_watch_is_on_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "policy.hmp"
    path.write_text("zero")

    async with reloading(partial(read, path)) as desk:
        path.write_text("one")  # and not one checkpoint since the start
        await saved_as(desk, "one")


@pytest.mark.slow
async def test_two_files_that_change_together_are_taken_together(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("0")
    other.write_text("0")

    async with reloading(partial(read, one, other)) as desk:
        await desk.until(lambda: desk.loads > 0)  # the watch is on
        for text in ("1", "2", "3"):
            one.write_text(text)
            other.write_text(text)
            await saved_as(desk, text, text)

    assert all(first == second for first, second in (each.texts for each in desk.applied))


@pytest.mark.slow
async def test_bad_then_good_then_back_to_what_ran(tmp_path: Path) -> None:
    path = tmp_path / "policy.hmp"
    path.write_text("zero")

    async with reloading(partial(read, path)) as desk:
        path.write_text("bad")
        await desk.until(lambda: len(desk.reported) == 1)
        path.write_text("zero")
        await saved_as(desk, "zero")
        path.unlink()
        await desk.until(lambda: len(desk.reported) == 2)
        path.write_text("two")
        await saved_as(desk, "two")

    assert [each.texts for each in desk.reported] == [("bad",), (None,)]
    assert [each.texts for each in desk.applied] == [("zero",), ("two",)]


@pytest.mark.slow
async def test_who_asks_has_it_taken_though_no_file_changed(tmp_path: Path) -> None:
    path = tmp_path / "policy.hmp"
    path.write_text("zero")

    async with reloading(partial(read, path)) as desk:
        for count in (1, 2):
            desk.reloader.trigger()
            await desk.until(partial(desk.has_applied, count))

    assert {each.texts for each in desk.applied} == {("zero",)}


@pytest.mark.slow
async def test_a_directory_that_comes_later_is_watched_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "later" / "policy.hmp"

    async with reloading(partial(read, path)) as desk:
        path.parent.mkdir()
        path.write_text("one")
        await saved_as(desk, "one")
        path.write_text("two")
        await saved_as(desk, "two")


@pytest.mark.slow
async def test_the_poll_sees_what_the_watch_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "POLL_S", 0.05)
    elsewhere = tmp_path / "elsewhere" / "policy.hmp"
    elsewhere.parent.mkdir()
    elsewhere.write_text("zero")
    link = tmp_path / "conf" / "policy.hmp"
    link.parent.mkdir()
    link.symlink_to(elsewhere)

    async with reloading(partial(read, link)) as desk:
        await desk.until(lambda: desk.loads > 2)
        elsewhere.write_text("one")
        await saved_as(desk, "one")


@contextmanager
def files_used_up() -> Iterator[None]:
    """The process may open no file more, and no watch."""
    taken = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_system_that_has_no_watch_left_leaves_the_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "POLL_S", 0.05)
    path = tmp_path / "policy.hmp"
    path.write_text("zero")

    # Reader and writer have theirs already: the watch would take a free one just when either needs it.
    with path.open("r+b", buffering=0) as file, files_used_up():
        async with reloading(lambda: Read((os.pread(file.fileno(), 100, 0).decode(),), (str(tmp_path),))) as desk:
            await desk.until(lambda: desk.loads > 2)
            os.pwrite(file.fileno(), b"ones", 0)
            await saved_as(desk, "ones")


# ---- a real policy ----


@attrs.frozen
class Policy:
    """A policy off the disk, with its secrets; what `serve` makes of one, and no more."""

    checked: Checked
    secrets: Secrets

    @classmethod
    def load(cls, path: Path) -> Policy:
        checked = check(str(path), DiskFiles(), allowed=[str(path.parent.parent)])
        return cls(checked, Secrets.resolve(checked.secret_spans))

    @property
    def fingerprint(self) -> str:
        return f"{self.checked.hash} {list(self.secrets.values())}"

    @property
    def good(self) -> bool:
        return not any(one.severity is Severity.ERROR for one in self.checked.diagnostics)

    @property
    def directories(self) -> tuple[str, ...]:
        paths = [*self.checked.paths, *(ref.name for ref in self.checked.secret_spans)]
        return tuple(dict.fromkeys(os.path.dirname(path) for path in paths))

    @property
    def limit(self) -> int:
        assert self.checked.program is not None
        return self.checked.program.providers["p"].limit


def provider_text(limit: int, key: str = "") -> str:
    return f'provider p {{ api anthropic; base "http://127.0.0.1:9"; concurrency {limit}; {key} }}\n'


@pytest.mark.slow
async def test_an_included_file_in_another_directory(tmp_path: Path) -> None:
    main, common, more = (tmp_path / each / "policy.hmp" for each in ("main", "common", "more"))
    for path in (main, common, more):
        path.parent.mkdir()
    main.write_text('hmp 1\ninclude "../common/policy.hmp"\n')
    common.write_text("hmp 1\n" + provider_text(1))
    more.write_text("hmp 1\n" + provider_text(2))

    async with reloading(partial(Policy.load, main)) as desk:

        async def limit(expected: int) -> None:
            await desk.until(lambda: bool(desk.applied) and desk.applied[-1].limit == expected)

        renamed_over(common, "hmp 1\n" + provider_text(3))
        await limit(3)
        # A directory that nothing was included from so far is watched from now on.
        renamed_over(main, 'hmp 1\ninclude "../more/policy.hmp"\n')
        await limit(2)
        await watched(desk, main.parent)
        renamed_over(more, "hmp 1\n" + provider_text(4))
        await limit(4)


@pytest.mark.slow
async def test_mending_an_included_file_that_broke_the_include(tmp_path: Path) -> None:
    main, common = (tmp_path / each / "policy.hmp" for each in ("main", "common"))
    for path in (main, common):
        path.parent.mkdir()
    main.write_text('hmp 1\ninclude "../common/policy.hmp"\n')
    common.write_text("hmp 1\n" + provider_text(1))

    async with reloading(partial(Policy.load, main)) as desk:
        common.unlink()
        await desk.until(lambda: len(desk.reported) == 1)
        await watched(desk, main.parent)
        # It is in no closure now, and its directory is watched all the same.
        common.write_text("hmp 1\n" + provider_text(2))
        await desk.until(lambda: len(desk.applied) == 1)

    assert desk.applied[0].limit == 2


@pytest.mark.slow
async def test_a_key_that_is_rotated_is_a_change(tmp_path: Path) -> None:
    main, key = tmp_path / "main" / "policy.hmp", tmp_path / "secrets" / "key"
    for path in (main, key):
        path.parent.mkdir()
    key.write_text("k-0\n")
    main.write_text("hmp 1\n" + provider_text(1, f'key file("{key}")'))

    async with reloading(partial(Policy.load, main)) as desk:
        for value in ("k-1", "k-2"):
            renamed_over(key, value + "\n")
            await desk.until(partial(desk.has_secrets, [value]))
