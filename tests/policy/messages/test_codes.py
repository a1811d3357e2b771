"""The pages of the codes: their examples hold, and there is one for each code that a policy can be told of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hivemind_trio
from hivemind_trio.policy import PAGES, MemoryFiles, Page, check, page_text
from tests.policy import regenerate

# The language's own list: append-only, so that a code in an old log or an old `allow` never changes its meaning.
CODES = (
    *range(1, 13),
    *range(101, 116),
    190,
    *range(201, 221),
    *range(301, 312),
    390,
    *range(401, 430),
    431,
    432,
    *range(501, 506),
    *range(601, 612),
    *range(701, 704),
    *range(901, 905),
)

PACKAGE = Path(hivemind_trio.__file__).parent


def found_in(text: str, code: str) -> list[str]:
    checked = regenerate.tested(check("team.hmp", MemoryFiles({"team.hmp": text})), code)
    return [one.code for one in checked.diagnostics]


def test_there_is_a_page_for_every_code_of_the_language_and_for_no_other() -> None:
    assert list(PAGES) == [f"HM{number:03}" for number in CODES]


@pytest.mark.parametrize("page", [page for page in PAGES.values() if page.wrong], ids=lambda page: page.code)
def test_what_stands_under_wrong_gives_this_code_and_no_other(page: Page) -> None:
    codes = found_in(page.wrong, page.code)

    assert set(codes) == {page.code}


@pytest.mark.parametrize("page", [page for page in PAGES.values() if page.right], ids=lambda page: page.code)
def test_what_stands_under_right_gives_nothing(page: Page) -> None:
    codes = found_in(page.right, page.code)

    assert codes == []


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.code)
def test_a_page_is_a_title_a_reason_and_both_examples_or_says_that_nobody_looks(page: Page) -> None:
    text = page_text(page)

    assert text.startswith(f"{page.code}: {page.title}\n\n")
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert page.why.endswith(".")
    assert not page.title.endswith(".")
    assert ("This version does not report it." in text) is not page.reported
    assert page.reported or not (page.wrong or page.right)
    assert page.wrong or not page.right


def mentioned() -> Iterator[str]:
    """Every code that the source can put into a diagnostic: a literal, but for the pages and for the editors' room."""
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "pages" and path.parent.name != "lsp":
            yield from re.findall(r"\"(HM\d{3})\"", path.read_text(encoding="utf-8"))


def test_the_pages_say_which_codes_this_version_looks_for() -> None:
    reported = {code for code, page in PAGES.items() if page.reported}

    assert set(mentioned()) == reported
