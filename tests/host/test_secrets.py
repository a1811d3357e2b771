"""A secret's value reaches whoever asks for it by reference, and nothing that is printed."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from hivemind_trio.host import Secrets, probe, probe_content
from hivemind_trio.host import secrets as secrets_module
from hivemind_trio.model import SecretRef, SecretSource
from hivemind_trio.policy import SecretState

VALUE = "sk-ant-0123456789"


def env(name: str = "HIVEMIND_TEST_KEY") -> SecretRef:
    return SecretRef(SecretSource.ENV, name)


def file(path: Path, content: bytes | str = VALUE, mode: int = 0o600) -> SecretRef:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return SecretRef(SecretSource.FILE, str(path))


# ---- values ----


def test_a_variable_s_value_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVEMIND_TEST_KEY", f" {VALUE}\n")

    assert Secrets.resolve([env()])[env()] == f" {VALUE}\n"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (VALUE, VALUE),
        (f"{VALUE}\n", VALUE),
        (f"{VALUE}\r\n", VALUE),
        (b"\xef\xbb\xbf" + VALUE.encode(), VALUE),
        (f" {VALUE} \n", f" {VALUE} "),
        (f"{VALUE}\n\n", f"{VALUE}\n"),
        ("schlüssel\n", "schlüssel"),
    ],
)
def test_a_file_s_value_is_its_text_without_the_newline_at_its_end(
    tmp_path: Path, content: bytes | str, value: str
) -> None:
    ref = file(tmp_path / "key", content)

    assert Secrets.resolve([ref])[ref] == value


def test_what_was_taken_stays_though_its_source_changes(tmp_path: Path) -> None:
    ref = file(tmp_path / "key", "old")
    secrets = Secrets.resolve([ref])
    file(tmp_path / "key", "new")

    assert secrets[ref] == "old"
    assert Secrets.resolve([ref])[ref] == "new"


def test_what_is_missing_is_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIVEMIND_TEST_KEY", raising=False)
    there, gone = file(tmp_path / "key"), SecretRef(SecretSource.FILE, str(tmp_path / "gone"))

    secrets = Secrets.resolve([there, gone, env()])

    assert list(secrets) == [there]
    assert len(secrets) == 1
    assert secrets.get(gone) is None
    with pytest.raises(KeyError):
        secrets[env()]


# ---- nothing prints a value ----


def test_nothing_that_is_printed_shows_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVEMIND_TEST_KEY", VALUE)
    ref = file(tmp_path / "key")
    secrets = Secrets.resolve([env(), ref])

    shown = [repr(secrets), str(secrets), f"{secrets}", f"{secrets!r:>40}", repr([secrets]), repr({1: secrets})]
    shown += [repr(secrets.keys()), repr(secrets.values()), repr(secrets.items())]
    try:
        secrets[SecretRef(SecretSource.ENV, "OTHER")]
    except KeyError as error:
        report = traceback.TracebackException.from_exception(error, capture_locals=True)
        shown.append("".join(report.format()))

    assert not [each for each in shown if VALUE in each]
    assert repr(secrets) == f'Secrets(env(HIVEMIND_TEST_KEY), file("{ref.name}"))'


# ---- probing ----


@pytest.mark.parametrize(
    ("value", "state"), [(None, SecretState.UNSET), ("", SecretState.UNSET), (VALUE, SecretState.OK)]
)
def test_a_variable_is_there_or_not(value: str | None, state: SecretState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIVEMIND_TEST_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("HIVEMIND_TEST_KEY", value)

    assert probe(env()) is state
    assert (env() in Secrets.resolve([env()])) == (state is SecretState.OK)


@pytest.mark.parametrize(
    ("mode", "state"),
    [
        (0o600, SecretState.OK),
        (0o400, SecretState.OK),
        (0o640, SecretState.OK),
        (0o604, SecretState.EXPOSED),
        (0o644, SecretState.EXPOSED),
        (0o622, SecretState.OK),
    ],
)
def test_a_file_that_every_user_may_read_is_exposed(tmp_path: Path, mode: int, state: SecretState) -> None:
    ref = file(tmp_path / "key", mode=mode)

    assert probe(ref) is state
    assert Secrets.resolve([ref])[ref] == VALUE


def test_it_is_the_file_s_mode_that_counts_and_not_the_link_s(tmp_path: Path) -> None:
    file(tmp_path / "key", mode=0o600)
    (tmp_path / "link").symlink_to("key")

    assert probe(SecretRef(SecretSource.FILE, str(tmp_path / "link"))) is SecretState.OK


@pytest.mark.parametrize(
    ("content", "state"),
    [
        (b"", SecretState.UNSET),
        (b"\n", SecretState.UNSET),
        (b"\r\n", SecretState.UNSET),
        (b"\xff\xfe", SecretState.MALFORMED),
        (b"k" * secrets_module.VALUE_MAX, SecretState.OK),
        (b"k" * (secrets_module.VALUE_MAX + 1), SecretState.MALFORMED),
    ],
    ids=["empty", "newline", "crlf", "no utf-8", "long", "too long"],
)
def test_a_file_that_holds_no_value_is_told_before_it_is_missed(
    tmp_path: Path, content: bytes, state: SecretState
) -> None:
    ref = file(tmp_path / "key", content)

    assert probe(ref) is state
    assert (ref in Secrets.resolve([ref])) == (state is SecretState.OK)


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda path: None, SecretState.UNSET),
        (lambda path: path.symlink_to("nowhere"), SecretState.UNSET),
        (Path.mkdir, SecretState.IRREGULAR),
        (os.mkfifo, SecretState.IRREGULAR),  # opening one would wait for ever
        (lambda path: path.symlink_to("/dev/zero"), SecretState.IRREGULAR),
        (lambda path: path.symlink_to(path), SecretState.UNREADABLE),
    ],
    ids=["missing", "dangling link", "directory", "pipe", "device", "loop of links"],
)
def test_what_is_no_file_has_no_value(tmp_path: Path, make: object, state: SecretState) -> None:
    assert callable(make)
    make(tmp_path / "key")
    ref = SecretRef(SecretSource.FILE, str(tmp_path / "key"))

    assert probe(ref) is state
    assert probe_content(ref) is (state if state is SecretState.IRREGULAR else SecretState.OK)
    assert ref not in Secrets.resolve([ref])


@pytest.mark.parametrize("name", ["a\0b", "x" * 5_000], ids=["nul", "too long"])
def test_a_name_that_no_file_can_have_is_unreadable(name: str) -> None:
    ref = SecretRef(SecretSource.FILE, name)

    assert probe(ref) is SecretState.UNREADABLE
    assert ref not in Secrets.resolve([ref])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_somebody_else_is_unreadable(tmp_path: Path) -> None:
    ref = file(tmp_path / "key", mode=0)

    assert probe(ref) is SecretState.UNREADABLE
    assert ref not in Secrets.resolve([ref])


@pytest.mark.parametrize(
    "content",
    [f"{VALUE}\nanother\n", f"{VALUE}\n\n", f" {VALUE}", f"{VALUE} \n", "a\tb", "a\x00b", "k\u00e9y", "a\u200bb"],
)
def test_a_file_of_more_than_one_line_is_no_secret(tmp_path: Path, content: str) -> None:
    assert probe(file(tmp_path / "key", content)) is SecretState.MALFORMED


def test_a_variable_of_more_than_one_line_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVEMIND_TEST_KEY", f"{VALUE}\n")

    assert probe(env()) is SecretState.MALFORMED
