"""Every invariant of several nodes is held by a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]


def test_the_table_of_invariants_names_tests_that_are_there() -> None:
    table = (TESTS / "README.md").read_text(encoding="utf-8").partition("## Several nodes")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| I")]
    assert [row[0].removeprefix("| ") for row in rows] == [f"I{number}" for number in range(1, 13)]
    for name, _, held, planted in rows:
        text = ""
        for cell in (held, planted):
            for word in re.findall(r"`([^`]+)`", cell):
                if word.endswith(".py"):
                    text += (TESTS / word).read_text(encoding="utf-8")
                else:
                    assert re.search(rf"def {word.replace('*', '.*')}\(", text), (name, word)
