"""`hivemind-trio check --fix` and `--diff`: what they write where, and with what status they end."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Run

BROKEN = "# keep me\nprovider anthropic { concurency 4 }  # and me\n"
MENDED = "# keep me\nprovider anthropic { concurrency 4 }  # and me\n"
GUESS = "lane batch { }\nrule r { lane bacth }\nprovider anthropic { }\n"
UNFIXABLE = "provider anthropic { concurrency 4; concurrency 5 }\n"
SAID = "HM102: `provider` has no setting `concurency`"


def test_fix_writes_the_file_and_says_what_was_fixed(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(BROKEN)

    result = run("check", "--fix", "team.hmp")

    assert result.exit_code == 0
    assert result.stdout == f"fixed team.hmp:2:22: {SAID}\nteam.hmp: no problems\n"
    assert (folder / "team.hmp").read_text() == MENDED
    assert run("check", "--fix", "team.hmp").stdout == "team.hmp: no problems\n"


def test_all_settings_of_one_line_are_divided_at_once(run: Run, folder: Path) -> None:
    """One `;` alone would bring up the next error of the line, and no fix may add one."""
    (folder / "team.hmp").write_text('provider p { api openai base "http://h" concurrency 2..64 timeout idle 5s }\n')

    result = run("check", "--fix", "team.hmp")

    assert result.exit_code == 0
    written = (folder / "team.hmp").read_text()
    assert written == 'provider p { api openai ; base "http://h"; concurrency 2..64; timeout idle 5s }\n'


def test_what_cannot_be_fixed_is_reported_and_fails(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(BROKEN + UNFIXABLE.replace("anthropic", "openai"))

    result = run("check", "--fix", "team.hmp")

    assert result.exit_code == 1
    assert "HM105" in result.stdout
    assert "team.hmp: 1 error\n" in result.stdout
    assert (folder / "team.hmp").read_text().startswith(MENDED)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_keeps_mode_line_ends_and_byte_order_mark(run: Run, folder: Path, mode: int) -> None:
    path = folder / "team.hmp"
    path.write_bytes(b"\xef\xbb\xbf" + BROKEN.replace("\n", "\r\n").encode())
    path.chmod(mode)

    run("check", "--fix", "team.hmp")

    assert path.read_bytes() == b"\xef\xbb\xbf" + MENDED.replace("\n", "\r\n").encode()
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_stays_a_link(run: Run, folder: Path) -> None:
    (folder / "real.txt").write_text(BROKEN)
    (folder / "team.hmp").symlink_to("real.txt")

    run("check", "--fix", "team.hmp")

    assert (folder / "team.hmp").is_symlink()
    assert (folder / "real.txt").read_text() == MENDED


def test_a_file_without_fixes_is_not_touched(run: Run, folder: Path) -> None:
    path = folder / "team.hmp"
    path.write_text(UNFIXABLE)
    before = path.stat()

    run("check", "--fix", "team.hmp")

    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert os.listdir(folder) == ["team.hmp"]


def test_a_failed_write_loses_nothing(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "team.hmp").write_text(BROKEN)

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = run("check", "--fix", "team.hmp")

    assert result.exit_code == 2
    assert result.stderr == "hivemind-trio: team.hmp: No space left on device\n"
    assert (folder / "team.hmp").read_text() == BROKEN
    assert os.listdir(folder) == ["team.hmp"]


def test_a_file_that_changes_meanwhile_is_not_overwritten(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "team.hmp").write_text(BROKEN)
    read = Path.read_bytes

    def changed(self: Path) -> bytes:
        return read(self) + b"# new\n"

    monkeypatch.setattr(Path, "read_bytes", changed)
    result = run("check", "--fix", "team.hmp")

    assert result.exit_code == 2
    assert "changed while it was checked" in result.stderr
    assert (folder / "team.hmp").read_text() == BROKEN


def test_an_edit_is_made_in_the_file_that_it_is_about_once(run: Run, folder: Path) -> None:
    (folder / "common").mkdir()
    (folder / "common" / "lanes.hmp").write_text("lane batch { wieght 2 }\n")
    for name in ("a.hmp", "b.hmp"):
        (folder / name).write_text('include "common/*.hmp"\nrule r { lane batch }\n' + MENDED)

    result = run("check", "--fix", "a.hmp", "b.hmp")

    assert result.exit_code == 0
    assert result.stdout.count("fixed ") == 1
    assert "fixed common/lanes.hmp:1:14: HM102" in result.stdout
    assert (folder / "common" / "lanes.hmp").read_text() == "lane batch { weight 2 }\n"


def test_unsafe_fixes_are_applied_only_if_asked(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(GUESS)

    safe = run("check", "--fix", "team.hmp")
    assert safe.exit_code == 1
    assert safe.stdout.endswith("1 fixable with --fix --unsafe-fixes\n")
    assert (folder / "team.hmp").read_text() == GUESS
    unsafe = run("check", "--fix", "--unsafe-fixes", "team.hmp")

    assert unsafe.exit_code == 0
    assert (folder / "team.hmp").read_text() == GUESS.replace("bacth", "batch")


def test_check_says_how_many_problems_fix_would_mend(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(BROKEN)
    (folder / "more.hmp").write_text(GUESS)

    assert run("check", "team.hmp").stdout.endswith("team.hmp: 1 error\n1 fixable with --fix\n")
    assert run("check").stdout.endswith("1 fixable with --fix, 1 more with --unsafe-fixes\n")
    assert "fixable" not in run("check", "--format", "short").stdout


def test_diff_shows_what_would_change_and_writes_nothing(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(BROKEN)

    result = run("check", "--diff", "team.hmp")

    assert result.exit_code == 1
    assert result.stdout == (
        "--- team.hmp\n+++ team.hmp (fixed)\n@@ -1,3 +1,3 @@\n # keep me\n"
        "-provider anthropic { concurency 4 }  # and me\n+provider anthropic { concurrency 4 }  # and me\n \n"
    )
    assert result.stderr == f"would fix team.hmp:2:22: {SAID}\n"
    assert (folder / "team.hmp").read_text() == BROKEN
    assert run("check", "--fix", "--diff", "team.hmp").stdout == result.stdout
    assert (folder / "team.hmp").read_text() == BROKEN


@pytest.mark.parametrize("text", [MENDED, UNFIXABLE])
def test_diff_ends_with_zero_if_nothing_would_change(run: Run, folder: Path, text: str) -> None:
    (folder / "team.hmp").write_text(text)

    result = run("check", "--diff", "team.hmp")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_no_key_comes_out_of_a_diff(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(
        'provider anthropic { key "hunter2"; concurency 4 }\nlet k = "sk-ant-api03-Zm9vYmFy"\n'
    )

    result = run("check", "--diff", "team.hmp")

    assert result.exit_code == 1
    assert "hunter2" not in result.output
    assert "Zm9v" not in result.output


def test_the_fixed_standard_input_goes_to_standard_output(run: Run) -> None:
    result = run("check", "--fix", "-", stdin=BROKEN)

    assert (result.exit_code, result.stdout) == (0, MENDED)
    assert result.stderr == f"fixed <stdin>:2:22: {SAID}\n<stdin>: no problems\n"
    assert run("check", "--fix", "-", stdin=MENDED).stdout == MENDED
    assert run("check", "--diff", "-", stdin=BROKEN).stdout.startswith("--- <stdin>\n")


def test_standard_input_stands_alone(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(BROKEN)

    result = run("check", "--fix", "-", "team.hmp", stdin=BROKEN)

    assert result.exit_code == 2
    assert "`-` stands alone" in result.stderr
    assert (folder / "team.hmp").read_text() == BROKEN


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--unsafe-fixes",), "--unsafe-fixes needs --fix or --diff"),
        (("--diff", "--format", "json"), "takes no --format"),
    ],
    ids=["unsafe", "format"],
)
def test_wrong_usage(run: Run, folder: Path, args: tuple[str, ...], said: str) -> None:
    (folder / "team.hmp").write_text(BROKEN)

    result = run("check", "team.hmp", *args)

    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("format_", ["json", "sarif", "short", "github", "junit"])
def test_machine_formats_are_of_what_remains_and_the_fixes_are_said_beside(
    run: Run, folder: Path, format_: str
) -> None:
    (folder / "team.hmp").write_text(BROKEN)

    result = run("check", "--fix", "team.hmp", "--format", format_)

    assert result.exit_code == 0
    assert "HM102" not in result.stdout
    assert result.stderr == f"fixed team.hmp:2:22: {SAID}\n"


def test_json_and_sarif_carry_the_edit(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_text(BROKEN)

    (found,) = json.loads(run("check", "--format", "json").stdout)["diagnostics"]
    (result,) = json.loads(run("check", "--format", "sarif").stdout)["runs"][0]["results"]

    (edit,) = found["fix"]["edits"]
    assert (found["fix"]["applicability"], edit["text"], edit["file"]) == ("safe", "concurrency", "team.hmp")
    start, end = edit["start"]["offset"], edit["end"]["offset"]
    assert BROKEN[:start] + edit["text"] + BROKEN[end:] == MENDED
    ((change,),) = [fix["artifactChanges"] for fix in result["fixes"]]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 2, "startColumn": 22, "endLine": 2, "endColumn": 32},
            "insertedContent": {"text": "concurrency"},
        }
    ]


def test_a_file_that_cannot_be_read_is_left_alone(run: Run, folder: Path) -> None:
    (folder / "team.hmp").write_bytes(b"provider \xff { }\n")

    assert run("check", "--fix", "team.hmp").exit_code == 2
    assert run("check", "--diff", "team.hmp").exit_code == 2
    assert (folder / "team.hmp").read_bytes() == b"provider \xff { }\n"
