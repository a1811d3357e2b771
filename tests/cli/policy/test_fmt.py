"""`hivemind-trio fmt`: files in place, in one step and with their mode; or only what would change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Run

UGLY = "provider anthropic {queue 4\n   concurrency 8}\n"
PRETTY = "provider anthropic {\n  queue       4\n  concurrency 8\n}\n"
BROKEN = "provider anthropic { concurrency = 4 }\n"


def test_a_file_is_laid_out_in_place_and_named(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(UGLY)

    result = run("fmt", "team.hmp")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "formatted team.hmp\n", "")
    assert (folder / "team.hmp").read_text() == PRETTY
    assert run("fmt", "team.hmp").stdout == ""


def test_what_is_no_file_is_not_read(run: Run, folder: Path) -> None:
    os.mkfifo(folder / "pipe.hmp")

    result = run("fmt", "pipe.hmp")

    assert (result.exit_code, result.stderr) == (2, "hivemind-trio: pipe.hmp: not a regular file\n")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_keeps_its_mode(run: Run, folder: Path, mode: int) -> None:
    path = folder / "team.hmp"
    path.write_text(UGLY)
    path.chmod(mode)

    run("fmt", "team.hmp")

    assert path.read_text() == PRETTY
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_stays_a_link_and_its_target_is_laid_out(run: Run, folder: Path) -> None:
    (folder / "real.txt").write_text(UGLY)
    (folder / "team.hmp").symlink_to("real.txt")

    run("fmt", "team.hmp")

    assert (folder / "team.hmp").is_symlink()
    assert (folder / "real.txt").read_text() == PRETTY


def test_a_file_is_replaced_in_one_step(run: Run, folder: Path) -> None:
    path = folder / "team.hmp"
    path.write_text(UGLY)
    before = path.stat().st_ino

    with path.open() as reader:  # as a proxy that reads it meanwhile
        run("fmt", "team.hmp")

        assert reader.read() == UGLY
    assert path.stat().st_ino != before
    assert os.listdir(folder) == ["team.hmp"]


def test_a_failed_write_loses_nothing_and_leaves_nothing_behind(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "team.hmp").write_text(UGLY)

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = run("fmt", "team.hmp")

    assert result.exit_code == 2
    assert result.stderr == "hivemind-trio: team.hmp: No space left on device\n"
    assert (folder / "team.hmp").read_text() == UGLY
    assert os.listdir(folder) == ["team.hmp"]


def test_a_clean_file_is_not_touched(run: Run, folder: Path) -> None:
    path = folder / "team.hmp"
    path.write_text(PRETTY)
    before = path.stat()

    result = run("fmt", "team.hmp")

    assert (result.exit_code, result.stdout) == (0, "")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(("text", "status"), [(PRETTY, 0), (UGLY, 1)])
@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_check_and_diff_write_nothing_and_end_with_one_if_something_would_change(
    run: Run, folder: Path, text: str, status: int, option: str
) -> None:
    (folder / "team.hmp").write_text(text)

    result = run("fmt", option, "team.hmp")

    assert result.exit_code == status
    assert (folder / "team.hmp").read_text() == text
    assert (result.stdout == "") is (status == 0)


def test_check_names_what_would_change(run: Run, folder: Path) -> None:
    (folder / "a.hmp").write_text(UGLY)
    (folder / "b.hmp").write_text(PRETTY)

    assert run("fmt", "--check").stdout == "would format a.hmp\n"


def test_diff_shows_what_would_change_as_patch_reads_it(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(UGLY)

    assert run("fmt", "--diff", "team.hmp").stdout == (
        "--- team.hmp\n"
        "+++ team.hmp (formatted)\n"
        "@@ -1,3 +1,5 @@\n"
        "-provider anthropic {queue 4\n"
        "-   concurrency 8}\n"
        "+provider anthropic {\n"
        "+  queue       4\n"
        "+  concurrency 8\n"
        "+}\n"
        " \n"
    )


def test_diff_colours_lines_only_if_asked(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(UGLY)

    assert "\x1b" not in run("fmt", "--diff").stdout
    assert "\x1b[31m-provider anthropic {queue 4\x1b[0m\n" in run("fmt", "--diff", "--color", "always").stdout


def test_neither_a_key_nor_a_control_character_comes_out_of_a_diff(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text('# sk-ant-api03-Zm9vYmFyYmF6\nrule r {deny "\x1b[2J\u202e"}\n')

    diff = run("fmt", "--diff", "team.hmp").stdout

    assert "Zm9v" not in diff
    assert "␛[2J\ufffd" in diff
    assert "\x1b" not in diff


def test_standard_input_goes_to_standard_output(run: Run) -> None:
    result = run("fmt", "-", stdin=UGLY)

    assert (result.exit_code, result.stdout, result.stderr) == (0, PRETTY, "")
    assert run("fmt", "-", "--check", stdin=UGLY).stdout == "would format <stdin>\n"
    assert run("fmt", "-", "--check", stdin=UGLY).exit_code == 1
    assert run("fmt", "-", "--check", stdin=PRETTY).exit_code == 0


def test_standard_input_that_cannot_be_read_gives_nothing(run: Run) -> None:
    result = run("fmt", "-", stdin=BROKEN)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "<stdin>: left as it is: line 1: unexpected `=`\n"


def test_standard_input_stands_alone(run: Run) -> None:
    result = run("fmt", "-", "team.hmp", stdin=UGLY)

    assert result.exit_code == 2
    assert result.stderr == "hivemind-trio: `-` stands alone: standard input goes to standard output\n"


def test_a_file_with_a_syntax_error_is_left_alone_and_the_others_are_not(run: Run, folder: Path) -> None:
    (folder / "a.hmp").write_text(BROKEN)
    (folder / "b.hmp").write_bytes(b"provider \xff { }")
    (folder / "c.hmp").write_text(UGLY)

    result = run("fmt")

    assert result.exit_code == 1
    assert result.stdout == "formatted c.hmp\n"
    assert result.stderr.splitlines() == [
        "a.hmp: left as it is: line 1: unexpected `=`",
        "b.hmp: left as it is: not UTF-8",
    ]
    assert (folder / "a.hmp").read_text() == BROKEN


def test_a_file_that_is_not_there_is_said_and_the_others_are_laid_out(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(UGLY)

    result = run("fmt", "none.hmp", "team.hmp")

    assert result.exit_code == 2
    assert result.stderr == "hivemind-trio: none.hmp: No such file or directory\n"
    assert (folder / "team.hmp").read_text() == PRETTY


def test_a_folder_is_walked_and_this_one_if_none_is_named(run: Run, folder: Path) -> None:
    (folder / "top.hmp").write_text(UGLY)
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "x.hmp").write_text(UGLY)
    (folder / "sub" / "deep" / "x.txt").write_text(UGLY)

    deep = Path("sub/deep/x.hmp")

    assert run("fmt", "sub").stdout == f"formatted {deep}\n"
    (folder / deep).write_text(UGLY)
    assert run("fmt").stdout == f"formatted {deep}\nformatted top.hmp\n"
    assert (folder / "sub" / "deep" / "x.txt").read_text() == UGLY


def test_nothing_to_lay_out_is_wrong_usage(run: Run, folder: Path) -> None:
    (folder / "sub").mkdir()

    assert run("fmt").stderr.startswith("hivemind-trio: no *.hmp in this folder or below\n")
    assert run("fmt", "sub").exit_code == 2
