"""What a user is shown for each mistake, letter by letter: `diagnostics/`, as `regenerate.py` explains it.

After a change of a message: `python -m tests.policy.regenerate`, and read the difference.
"""

from __future__ import annotations

import re

import pytest

from hivemind_trio.policy import PAGES, Severity
from tests.policy.regenerate import BASES, FOLDER, Case, cases, shown

CASES = cases()

# Found between two policies: no text gives it. `diff` and `serve` have their tests.
WITHOUT_A_FILE = {"HM701", "HM702", "HM703"}

OF_TESTS = {"HM501", "HM503", "HM504"}

QUOTED = re.compile(r"`[^`]*`")
RIDDLE = re.compile(
    r"\b(?:wants?|nobody|anybody|somebody|whoever|is no (?!error)|there (?:is|are) (?!no )|stands?|leave out)\b"
)
"""Words that no engineer searches for. What is quoted from the policy does not count."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_shown_as_its_golden_file_says(case: Case) -> None:
    checked = case.make()

    assert case.code in {found.code for found in checked.diagnostics}
    assert shown(checked) == case.golden.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_finding_is_of_one_style(case: Case) -> None:
    for found in case.make().diagnostics:
        texts = [found.message, found.note, found.help, *(label.text for label in found.labels)]
        assert PAGES[found.code].reported
        assert not any(text.endswith(".") and not text.endswith("...") for text in texts)
        assert all(text.count("`") % 2 == 0 for text in texts)
        assert found.message[0].islower() or found.message[0] in "`"
        assert not [text for text in texts if RIDDLE.search(QUOTED.sub("", text))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name not in (*BASES, "HM209_irregular", "HM209_malformed")],
    ids=lambda case: case.name,
)
def test_there_is_a_program_exactly_if_there_is_no_error(case: Case) -> None:
    checked = case.make()

    # A policy that fails its tests runs; and what a machine holds in its variables is found on that machine.
    errors = [one for one in checked.diagnostics if one.severity is Severity.ERROR and one.code not in OF_TESTS]
    assert (checked.program is None) is bool(errors)


def test_every_code_that_is_looked_for_has_a_golden_file() -> None:
    reported = {code for code, page in PAGES.items() if page.reported}

    assert {case.code for case in CASES} | WITHOUT_A_FILE == reported


def test_no_golden_file_is_without_its_case() -> None:
    assert {path.name for path in FOLDER.glob("*.txt")} == {f"{case.name}.txt" for case in CASES}
