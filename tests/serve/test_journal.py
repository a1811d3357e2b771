"""A journal that cannot be is said before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind_trio.serve import Options, main
from hivemind_trio.store.journal.journal_file import JournalFile

POLICY = 'hmp 1\nprovider anthropic { base "http://127.0.0.1:1" }\n'


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("taken.journal", "another hivemind-trio is writing it; give each proxy a journal of its own"),
        ("team.hmp", "not a journal; name a file that `hivemind-trio serve --journal FILE` has written"),
        ("no/team.journal", "there is no such folder; `mkdir -p "),
        ("", "cannot be written: "),
    ],
    ids=["taken", "not a journal", "no folder", "a folder"],
)
def test_it_does_not_start_and_says_why(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "team.hmp").write_text(POLICY)
    other = JournalFile.open(str(tmp_path / "taken.journal"))
    try:
        options = Options(
            policy=str(tmp_path / "team.hmp"), listen="127.0.0.1:0", journal=str(tmp_path / name if name else tmp_path)
        )
        assert main(options) == 2
    finally:
        other.close(None)

    said = capsys.readouterr().err
    assert said.startswith("hivemind-trio: --journal ")
    assert words in said
    assert len(said.splitlines()) == 1
