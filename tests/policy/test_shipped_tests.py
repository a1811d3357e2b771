"""The policies that ship promise something, and their tests can fail: all rules are exercised, and each matters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs
import pytest

from bench.policies import cells, measured, programs
from hivemind_trio.host import DiskFiles
from hivemind_trio.policy import Checked, Run, check, run_tests, unexercised
from hivemind_trio.policy.program.policy_tests import GivenAny
from hivemind_trio.policy_tests import rehearse

FOLDER: Final = Path(__file__).parents[2] / "policies"
NAMES: Final = sorted(path.name for path in FOLDER.glob("*.hmp"))


def checked(name: str) -> Checked:
    return check(str(FOLDER / name), DiskFiles())


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_policy_has_two_tests_at_least_and_one_about_all_calls(name: str) -> None:
    tests = checked(name).tests

    assert len(tests) >= 2
    assert any(isinstance(ask, GivenAny) for test in tests if isinstance(test.asks, tuple) for ask in test.asks)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_its_tests_hold_and_exercise_every_rule(name: str) -> None:
    policy = checked(name)

    simulated = [rehearse(policy, test) for test in policy.tests if isinstance(test.asks, Run)]
    ran = [*run_tests(policy, coverage=True), *simulated]

    assert [one.diagnostics for one in ran] == [()] * len(policy.tests)
    assert [one.message for one in unexercised(policy, ran)] == []


RULES: Final = [(name, rule) for name in NAMES for rule in checked(name).declarations.of("rule")]

NOT_SEEN: Final = {
    ("fleet.hmp", "base"),  # the tests about priorities are about those who have another
}
"""Rules without which the tests about calls hold all the same."""


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[f"{name}/{rule}" for name, rule in RULES])
def test_without_a_rule_a_test_fails(name: str, rule: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    # The rule is there, and for nobody.
    crippled = re.sub(
        rf"^(rule {re.escape(rule)})( when .*?)? \{{$|^(rule {re.escape(rule)})( when .*?)? \{{ ",
        lambda found: f"{found[1] or found[3]} when hour == 0 and hour == 1 {{ ",
        text,
        flags=re.MULTILINE,
    )
    assert crippled != text

    @attrs.frozen
    class Crippled:
        disk: DiskFiles = attrs.field(factory=DiskFiles)

        def read(self, path: str) -> bytes:
            return crippled.encode() if Path(path).name == name else self.disk.read(path)

        def resolve(self, path: str) -> str:
            return self.disk.resolve(path)

        def glob(self, pattern: str) -> list[str]:
            return self.disk.glob(pattern)

    policy = check(str(FOLDER / name), Crippled())
    assert policy.program is not None, policy.diagnostics

    fails = any(one.failed for one in run_tests(policy))

    assert fails is ((name, rule) not in NOT_SEEN)


def test_the_readme_of_the_policies_names_each_with_what_was_measured() -> None:
    text = (FOLDER / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `?\[?`?([\w-]+\.hmp)", text, re.MULTILINE)

    assert sorted(rows) == sorted([*NAMES, *NAMES])
    assert list(programs(FOLDER)) == NAMES
    (date,) = re.findall(r"^Measured (\d{4}-\d\d-\d\d) with", text, re.MULTILINE)
    assert date >= "2026-11-21"


@pytest.mark.slow
def test_what_is_measured_says_what_became_of_the_agents_both_ways() -> None:
    found = cells(measured(programs(FOLDER)["solo.hmp"], range(1, 2), 1))

    assert all(re.fullmatch(r"[\d,]+( s)? → [\d,]+( s)?", cell) for cell in found)
    direct, proxied = map(int, found[0].split(" → "))
    assert proxied <= direct
