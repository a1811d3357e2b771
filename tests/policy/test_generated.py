"""Generated modules say what their sources say."""

from __future__ import annotations

import pytest

from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.policy.language.time_zones import TIME_ZONES
from tests.policy.generated import MODULES, grammar, zones


def test_the_grammar_of_the_package_is_the_grammar_of_the_repository() -> None:
    (path,) = [path for path, made in MODULES.items() if made is grammar]

    assert path.read_text(encoding="utf-8") == grammar(), "run `python -m tests.policy.generated`"


def test_every_time_zone_can_be_looked_up() -> None:
    """A newer `tzdata` may have more names; one that is gone would fail when the policy is served."""
    assert set(zones()) >= TIME_ZONES, "run `python -m tests.policy.generated`"


@pytest.mark.parametrize(("zone", "codes"), [("Europe/Paris", []), ("Europe/Pariss", ["HM219"]), ("../etc", ["HM219"])])
def test_a_time_zone_is_one_of_the_table(zone: str, codes: list[str]) -> None:
    text = f'hmp 1\nserver {{ timezone "{zone}" }}\nprovider anthropic {{ }}\n'

    checked = check("team.hmp", MemoryFiles({"team.hmp": text}))

    assert [one.code for one in checked.diagnostics if one.code.startswith("HM2")] == codes
