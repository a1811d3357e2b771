"""The disk as the language reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hivemind_trio.host import DiskFiles, folders
from hivemind_trio.host import disk_files as files_module
from hivemind_trio.policy import Severity, check


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    content = b"hmp 1\r\n\xff\x00 no newline at the end"
    (tmp_path / "policy.hmp").write_bytes(content)

    assert DiskFiles().read(str(tmp_path / "policy.hmp")) == content


def test_relative_paths_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "policy.hmp").write_text("here")
    monkeypatch.chdir(tmp_path)

    assert DiskFiles().read("conf/policy.hmp") == b"here"
    assert DiskFiles().read("conf/../conf/policy.hmp") == b"here"
    assert DiskFiles().glob("conf/*.hmp") == ["conf/policy.hmp"]
    monkeypatch.chdir(tmp_path / "conf")
    assert DiskFiles().read("policy.hmp") == b"here"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("here")
    (tmp_path / "link").symlink_to("real")

    assert DiskFiles().read(str(tmp_path / "link")) == b"here"


def nothing(_: Path) -> None:
    pass


def loop(path: Path) -> None:
    path.symlink_to(path)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (nothing, FileNotFoundError, "No such file"),
        (dangling, FileNotFoundError, "No such file"),
        (loop, OSError, "symbolic links"),
        (Path.mkdir, OSError, "not a regular file"),
        (os.mkfifo, OSError, "not a regular file"),  # opening one would wait for ever
        (lambda path: path.symlink_to("/dev/zero"), OSError, "not a regular file"),
    ],
    ids=["missing", "dangling link", "loop of links", "directory", "pipe", "device"],
)
def test_what_cannot_be_read_is_an_os_error_that_says_why(
    tmp_path: Path, make: object, error: type[OSError], why: str
) -> None:
    assert callable(make)
    make(tmp_path / "policy.hmp")

    with pytest.raises(error) as caught:
        DiskFiles().read(str(tmp_path / "policy.hmp"))

    assert why in (caught.value.strerror or "")


def test_a_file_below_a_file_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(NotADirectoryError):
        DiskFiles().read(str(tmp_path / "file" / "policy.hmp"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_somebody_else_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "policy.hmp").touch(mode=0)

    with pytest.raises(PermissionError):
        DiskFiles().read(str(tmp_path / "policy.hmp"))


def test_a_file_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "READ_MAX", 1 << 20)
    path = tmp_path / "policy.hmp"
    path.write_bytes(b"#" * (1 << 20))
    assert len(DiskFiles().read(str(path))) == 1 << 20

    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(OSError, match="larger than 1 MiB"):
        DiskFiles().read(str(path))


def test_a_glob_gives_files_only_and_sorted(tmp_path: Path) -> None:
    for name in ("b.hmp", "a.hmp", "C.hmp", "a.txt", ".hidden.hmp"):
        (tmp_path / name).touch()
    (tmp_path / "directory.hmp").mkdir()
    (tmp_path / "link.hmp").symlink_to("a.hmp")
    (tmp_path / "broken.hmp").symlink_to("nowhere")

    found = DiskFiles().glob(f"{tmp_path}/*.hmp")

    assert found == [f"{tmp_path}/{name}" for name in ("C.hmp", "a.hmp", "b.hmp", "link.hmp")]


def test_two_stars_cross_folders_and_one_does_not(tmp_path: Path) -> None:
    for name in ("z.hmp", "one/y.hmp", "one/two/x.hmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()

    assert DiskFiles().glob(f"{tmp_path}/*/*.hmp") == [f"{tmp_path}/one/y.hmp"]
    assert DiskFiles().glob(f"{tmp_path}/**/*.hmp") == [
        f"{tmp_path}/{name}" for name in ("one/two/x.hmp", "one/y.hmp", "z.hmp")
    ]


def test_a_glob_without_wildcards_gives_the_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "a.hmp").touch()

    assert DiskFiles().glob(f"{tmp_path}/a.hmp") == [f"{tmp_path}/a.hmp"]
    assert DiskFiles().glob(f"{tmp_path}/b.hmp") == []
    (tmp_path / "folder.hmp").mkdir()
    assert DiskFiles().glob(f"{tmp_path}/folder.hmp") == [f"{tmp_path}/folder.hmp"], "to read it says what is wrong"


def test_the_language_reads_a_policy_off_the_disk_with_all_that_it_includes(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "b.hmp").write_text("hmp 1\nlane late {}\n")
    (tmp_path / "parts" / "a.hmp").write_text("hmp 1\nlane early {}\n")
    main = tmp_path / "main.hmp"
    main.write_text('hmp 1\ninclude "parts/*.hmp"\nprovider p { api anthropic; base "http://127.0.0.1:9" }\n')

    checked = check(str(main), DiskFiles())

    assert [each for each in checked.diagnostics if each.severity is Severity.ERROR] == []
    assert checked.program is not None
    assert [name for name in checked.program.lanes if name != "default"] == ["early", "late"]


def test_a_name_that_no_file_can_have_is_a_diagnostic_and_no_crash(tmp_path: Path) -> None:
    main = tmp_path / "main.hmp"
    main.write_bytes(b'hmp 1\ninclude "a\x00b.hmp"\ninclude "a\x00*.hmp"\n')

    checked = check(str(main), DiskFiles())

    assert checked.program is None
    assert any(each.severity is Severity.ERROR for each in checked.diagnostics)


def link(place: Path, target: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def test_of_a_plain_file_its_folder_is_watched(tmp_path: Path) -> None:
    assert folders(str(tmp_path / "team.hmp")) == [str(tmp_path)]
    assert folders("team.hmp")[0] == "."


def test_of_a_link_the_folders_of_all_links_and_of_the_file_are_watched(tmp_path: Path) -> None:
    real = tmp_path / "git" / "policies"
    real.mkdir(parents=True)
    (real / "team.hmp").write_text("hmp 1")
    link(tmp_path / "current" / "team.hmp", "../git/policies/team.hmp")
    link(tmp_path / "etc" / "team.hmp", str(tmp_path / "current" / "team.hmp"))

    found = folders(str(tmp_path / "etc" / "team.hmp"))

    assert found == [str(tmp_path / "etc"), str(tmp_path / "current"), str(real)]


def test_a_folder_that_is_a_link_is_watched_where_the_link_is_too(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    link(tmp_path / "etc" / "now", "../v1")

    found = folders(str(tmp_path / "etc" / "now" / "team.hmp"))

    assert found == [str(tmp_path / "etc" / "now"), str(tmp_path / "etc"), str(tmp_path / "v1")]


def test_links_that_go_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    link(tmp_path / "a", "b")
    link(tmp_path / "b", "a")

    assert str(tmp_path) in folders(str(tmp_path / "a"))
