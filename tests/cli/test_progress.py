"""The progress of a long check: on a terminal, after a while, and gone at the end."""

from __future__ import annotations

from itertools import count

import pytest

from hivemind_trio.cli import progress as _progress
from hivemind_trio.cli.progress import CheckProgress, ProgressLine
from hivemind_trio.policy import MemoryFiles, check, untold

POLICY = "".join(f"rule r{number} when tokens.in == {number} {{ priority 1 }}\n" for number in range(400))


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, step_s: float) -> None:
    monkeypatch.setattr(_progress, "on_terminal", lambda: is_terminal)
    clock = (number * step_s for number in count())
    with ProgressLine() as line:
        progress = CheckProgress(line, lambda: next(clock))
        check("team.hmp", MemoryFiles({"team.hmp": POLICY}), progress.of("team.hmp") or untold)


@pytest.mark.parametrize(("is_terminal", "step_s"), [(False, 1.0), (True, 1e-5)], ids=["no terminal", "fast"])
def test_nothing_is_written_where_nobody_looks_or_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool, step_s: float
) -> None:
    shown(monkeypatch, is_terminal=is_terminal, step_s=step_s)

    assert capsys.readouterr() == ("", "")


def test_a_long_check_says_what_it_does_and_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(monkeypatch, is_terminal=True, step_s=0.3)

    out, err = capsys.readouterr()
    lines = err.split("\r\x1b[K")
    assert out == ""
    assert any(line.startswith("team.hmp: reading, ") for line in lines)
    assert "team.hmp: comparing rules, 50%" in lines
    assert lines[-1] == ""
