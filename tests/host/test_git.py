"""A policy's files as git had them: a repository of its own, and a real git."""

from __future__ import annotations

import glob
import os
import subprocess
from pathlib import Path

import pytest

from hivemind_trio.host import GitError, GitFiles
from hivemind_trio.policy import check

PROVIDER = "provider anthropic { }\n"


def git(folder: Path, *words: str) -> None:
    who = {f"GIT_{role}_{what}": "nobody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    away = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *words], cwd=folder, env=os.environ | who | away, capture_output=True, check=True)


def commit(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "--allow-empty", "-m", "x")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one commit; the working directory is within it."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(
        tmp_path,
        {
            "team.hmp": PROVIDER + 'include "common/*.hmp"\n',
            "common/a.hmp": "lane a { }\n",
            "common/b.hmp": "lane b { }\n",
            "common/.hidden.hmp": "lane hidden { }\n",
            "common/deep/c.hmp": "lane c { }\n",
            "od[d/x.hmp": "lane x { }\n",
        },
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_read_as_it_was_and_not_as_it_is(repository: Path) -> None:
    (repository / "team.hmp").write_text("changed\n")

    files = GitFiles.at("HEAD", "team.hmp")

    assert files.named("team.hmp") == "HEAD:./team.hmp"
    assert files.read("HEAD:./team.hmp").startswith(b"provider anthropic")
    assert files.read(files.named(str(repository / "team.hmp"))).startswith(b"provider anthropic")


def test_what_a_policy_included_then_is_read_from_then(repository: Path) -> None:
    (repository / "common" / "a.hmp").unlink()
    (repository / "common" / "new.hmp").write_text("lane new { }\n")

    files = GitFiles.at("main", "team.hmp")
    checked = check(files.named("team.hmp"), files)

    assert checked.paths == ("main:./team.hmp", "main:./common/a.hmp", "main:./common/b.hmp")
    assert checked.program is not None
    assert {"a", "b"} < checked.program.lanes.keys()


GLOBS = {
    "HEAD:./common/*.hmp": ["HEAD:./common/a.hmp", "HEAD:./common/b.hmp"],
    "HEAD:./common/**/*.hmp": ["HEAD:./common/a.hmp", "HEAD:./common/b.hmp", "HEAD:./common/deep/c.hmp"],
    "HEAD:./*/?.hmp": ["HEAD:./common/a.hmp", "HEAD:./common/b.hmp", "HEAD:./od[d/x.hmp"],
    "HEAD:./common/.h*.hmp": ["HEAD:./common/.hidden.hmp"],
    "HEAD:./od[[]d/*.hmp": ["HEAD:./od[d/x.hmp"],
    "HEAD:./team.hmp": ["HEAD:./team.hmp"],
    "HEAD:./none/*.hmp": [],
}


@pytest.mark.parametrize("pattern", GLOBS)
def test_a_pattern_finds_what_it_would_find_on_a_disk(repository: Path, pattern: str) -> None:
    found = GitFiles.at("HEAD", "team.hmp").glob(pattern)

    assert found == GLOBS[pattern]
    on_disk = sorted(glob.glob(pattern.removeprefix("HEAD:./"), recursive=True))
    assert [name.removeprefix("HEAD:./") for name in found] == on_disk


def test_paths_are_relative_to_where_one_is(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository / "common")

    files = GitFiles.at("HEAD", "a.hmp")

    assert files.read(files.named("a.hmp")) == b"lane a { }\n"
    assert files.read(files.named("../team.hmp")).startswith(b"provider")
    assert files.glob("HEAD:./../od*/*.hmp") == ["HEAD:./../od[d/x.hmp"]


def test_a_link_is_followed_within_the_commit(repository: Path) -> None:
    (repository / "link.hmp").symlink_to("common/a.hmp")
    (repository / "round.hmp").symlink_to("round.hmp")
    (repository / "out.hmp").symlink_to("/etc/hostname")
    commit(repository, {})

    files = GitFiles.at("HEAD", "link.hmp")

    assert files.read("HEAD:./link.hmp") == b"lane a { }\n"
    for name in ("round.hmp", "out.hmp"):
        with pytest.raises(OSError, match=r"not a regular file|not there at HEAD"):
            files.read(f"HEAD:./{name}")


def test_a_file_that_was_not_there_is_told_apart(repository: Path) -> None:
    commit(repository, {"late.hmp": PROVIDER})

    before, after = GitFiles.at("HEAD~1", "late.hmp"), GitFiles.at("HEAD", "late.hmp")

    assert [before.has("late.hmp"), after.has("late.hmp")] == [False, True]
    with pytest.raises(FileNotFoundError, match="not there at HEAD~1"):
        before.read("HEAD~1:./late.hmp")


@pytest.mark.parametrize("revision", ["nothing", "--help", "", "HEAD:team.hmp"])
def test_a_revision_that_is_none_is_said_to_be_none(repository: Path, revision: str) -> None:
    with pytest.raises(GitError, match="no revision"):
        GitFiles.at(revision, "team.hmp")


def test_without_a_repository_or_without_git_it_says_so(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path_factory.getbasetemp().parent))
    with pytest.raises(GitError, match="is in no git repository"):
        GitFiles.at("HEAD", str(tmp_path / "team.hmp"))
    with pytest.raises(GitError, match="no folder"):
        GitFiles.at("HEAD", str(tmp_path / "none" / "team.hmp"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="git is not installed"):
        GitFiles.at("HEAD", str(tmp_path / "team.hmp"))
