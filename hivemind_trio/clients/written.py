"""Configuration files of clients on disk: written with a backup, and restored."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

import attrs

from hivemind_trio.store import state_home

from .client import Client, ConfigFile
from .config_text import NotEditable, edited, found, line

BACKUP: Final = ".before-hivemind-trio"
MODE: Final = 0o600
"""Mode of a new file: clients keep credentials in them, too."""


class SetupFailed(Exception):  # noqa: N818 - of the file's making
    """A file cannot be written or restored. `help` says what to do."""

    def __init__(self, message: str, help_text: str) -> None:
        super().__init__(message)
        self.help = help_text


@final
@attrs.frozen(kw_only=True)
class _Record:
    """Record of a file that was written: what it takes to restore it."""

    path: str
    existed: bool
    digest: str
    """Digest of the file as it was written."""
    ours: list[list[Any]]
    """Path of each setting, what it was before, and what was written."""


def config_path(file: ConfigFile, environment: Mapping[str, str]) -> Path:
    """Return the path of a client's file, links resolved.

    Raises:
        RuntimeError: There is no home directory.
    """
    moved = environment.get(file.moved_by, "") if file.moved_by else ""
    home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    folder = Path(moved) / file.below_moved if moved else home / file.folder
    return Path(os.path.realpath(folder / file.name))


@final
@attrs.frozen(kw_only=True)
class _Plan:
    """Plan for one file: what it holds, and what it will."""

    path: Path
    old: str | None
    new: str
    record: _Record
    place: Path
    is_first: bool
    """True unless it was written before."""

    @property
    def backup(self) -> Path:
        """Path of the copy of the file as it was."""
        return self.path.with_name(self.path.name + BACKUP)


def write(client: Client, url: str, environment: Mapping[str, str]) -> list[tuple[Path, Path | None]]:
    """Set the base URL in a client's files; the path of each, and that of the backup if there was a file.

    Raises:
        SetupFailed: It has no file, or one of its files cannot be changed.
    """
    # All are read before one is written.
    plans = [_planned(client, file, url, environment) for file in _files_of(client)]
    for plan in plans:
        try:
            _carry_out(plan)
        except OSError as error:
            done = f"hivemind-trio setup {client.name} --undo   takes back what was written"
            raise SetupFailed(f"{plan.path}: {error.strerror}", done) from None
    return [(plan.path, plan.backup if plan.record.existed else None) for plan in plans]


def _planned(client: Client, file: ConfigFile, url: str, environment: Mapping[str, str]) -> _Plan:
    path, place = config_path(file, environment), _place(client, file)
    old, record = _read(path), _record_at(place)
    if record is not None and record.path != f"{path}":
        raise SetupFailed(f"{client.name} is set up in {record.path}", f"hivemind-trio setup {client.name} --undo")
    text = old or ""
    kept = {tuple(name): before for name, before, _ in record.ours} if record is not None else {}
    try:
        wanted = {name: line(file.format, name, value.replace("{url}", url)) for name, value in file.settings.items()}
        ours = [
            [list(name), kept[name] if name in kept else found(file.format, text, name), value]
            for name, value in wanted.items()
        ]
        new = edited(file.format, text, wanted)
    except NotEditable as error:
        raise SetupFailed(f"{path}: {error}", "change it by hand, as shown without --write") from None
    existed = old is not None if record is None else record.existed
    return _Plan(
        path=path,
        old=old,
        new=new,
        record=_Record(path=f"{path}", existed=existed, digest=_digest(new), ours=ours),
        place=place,
        is_first=record is None,
    )


def _carry_out(plan: _Plan) -> None:
    plan.path.parent.mkdir(parents=True, exist_ok=True)
    mode = MODE if plan.old is None else plan.path.stat().st_mode & 0o777
    if plan.is_first and plan.old is not None:
        _put(plan.backup, plan.old, mode)
    # Before the file: a crash in between leaves what can be undone.
    plan.place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _put(plan.place, json.dumps(attrs.asdict(plan.record), indent=2), MODE)
    _put(plan.path, plan.new, mode)


def undo(client: Client) -> list[tuple[Path, str]]:
    """Restore a client's files; the path of each, and what was done.

    Raises:
        SetupFailed: It was not set up, or one of its files cannot be changed.
    """
    files = _files_of(client)
    records = [(file, record) for file in files if (record := _record_at(_place(client, file))) is not None]
    if not records:
        raise SetupFailed(f"{client.name} was not set up by `setup --write`", "there is nothing to undo")
    return [(Path(record.path), _undone(file, record, _place(client, file))) for file, record in records]


def _undone(file: ConfigFile, record: _Record, place: Path) -> str:
    path = Path(record.path)
    backup = path.with_name(path.name + BACKUP)
    text, before = _read(path), _read(backup) if record.existed else None
    if record.existed and before is None and text is not None and _digest(text) == record.digest:
        raise SetupFailed(f"the backup {backup} is gone", f"take the settings out of {path} by hand")
    try:
        if text is None and before is None:
            done = "it is gone already"
        elif text is None or _digest(text) == record.digest or text == before:
            done = _restore(path, before, path.stat().st_mode & 0o777 if text is not None else MODE)
        else:
            done = _take_out(file, path, text, before, record)
        backup.unlink(missing_ok=True)
        place.unlink()
    except NotEditable as error:
        raise SetupFailed(f"{path}: {error}", f"take the settings out by hand; before, it was {backup}") from None
    except OSError as error:
        raise SetupFailed(f"{path}: {error.strerror}", "nothing is lost: the backup stays") from None
    return done


def _restore(path: Path, before: str | None, mode: int) -> str:
    if before is None:
        path.unlink()
        return "removed: there was none before"
    _put(path, before, mode)
    return "restored as it was"


def _take_out(file: ConfigFile, path: Path, text: str, before: str | None, record: _Record) -> str:
    """Put back the settings alone: somebody else has changed the file in between."""
    changes: dict[tuple[str, ...], Any] = {}
    for name, was, ours in record.ours:
        if found(file.format, text, tuple(name)) == ours:
            changes[tuple(name)] = was
    new = edited(file.format, text, changes, before or "")
    if before is None and not new.strip().strip("{}").strip():
        return _restore(path, None, MODE)
    _put(path, new, path.stat().st_mode & 0o777)
    return "the settings were put back; it was changed by others in between, and keeps that"


def _files_of(client: Client) -> tuple[ConfigFile, ...]:
    if not client.files:
        raise SetupFailed(f"{client.title} has no file to write", f"hivemind-trio setup {client.name}   shows the way")
    return client.files


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SetupFailed(f"{path} is not in UTF-8", "change it by hand, as shown without --write") from None
    except OSError as error:
        raise SetupFailed(f"{path}: {error.strerror}", "make it a file that can be read") from None


def _put(path: Path, text: str, mode: int) -> None:
    """Write a file in one step: a crash leaves the old one."""
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}-", delete=False) as new:
        try:
            new.write(text.encode("utf-8"))
            new.flush()
            os.fsync(new.fileno())
            os.fchmod(new.fileno(), mode)
            os.replace(new.name, path)
        except BaseException:
            os.unlink(new.name)
            raise


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _place(client: Client, file: ConfigFile) -> Path:
    return state_home() / "setup" / f"{client.name}-{file.name.lstrip('.')}.json"


def _record_at(place: Path) -> _Record | None:
    text = _read(place)
    try:
        return None if text is None else _Record(**json.loads(text))
    except (ValueError, TypeError):
        raise SetupFailed(f"{place} is damaged", "remove it, and restore the backup by hand") from None
