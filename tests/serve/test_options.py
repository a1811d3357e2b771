"""Options of `serve` that do not go with a policy."""

from __future__ import annotations

import pytest

from hivemind_trio.serve.options import unshared
from tests.support.policies import compiled

POLICY = "provider anthropic { key env(KEY) }\nagent lead { token env(LEAD) }\n"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("", ""),
        ("resource gpu { }", ""),
        ("store memory { }", "`store memory` ends with each process"),
        ('jobs { allow lead; commands ["make *"] }', "`jobs` are run by one process"),
        ('jobs { commands ["make *"] }', ""),
    ],
)
def test_several_workers_are_refused_what_one_process_does(more: str, problem: str) -> None:
    found = unshared(compiled(POLICY + more))

    assert found.startswith(problem)
    assert bool(found) is bool(problem)
