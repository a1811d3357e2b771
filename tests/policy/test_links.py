"""Every relative link of a document has a file, and its anchor a heading."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = tuple(
    path
    for path in sorted(ROOT.rglob("*.md"))
    if not {".venv", ".git", "node_modules", "build"} & set(path.relative_to(ROOT).parts)
)

_FENCED: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_SCHEME: Final = re.compile(r"[a-z]+:")


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading: lower case, no punctuation, hyphens for blanks."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(document: Path) -> frozenset[str]:
    """Return the anchors of a document; a heading that comes again has a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_FENCED.sub("", document.read_text(encoding="utf-8"))):
        name = anchor(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(found)


def broken(document: Path, text: str) -> Iterator[str]:
    """Yield the links of a document that lead nowhere."""
    for link in _LINK.findall(_CODE.sub("", _FENCED.sub("", text))):
        if _SCHEME.match(link):
            continue
        path, _, name = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (name and target.suffix == ".md" and name not in anchors(target)):
            yield link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(document: Path) -> None:
    assert list(broken(document, document.read_text(encoding="utf-8"))) == []


def test_a_link_to_no_file_or_to_no_heading_is_found() -> None:
    text = "[a](README.md#quick-start) [b](README.md#no-such) [c](no-such.md) [d](https://example.com/x) `[e](no)`"

    assert list(broken(ROOT / "README.md", text)) == ["README.md#no-such", "no-such.md"]


def test_the_anchor_of_a_heading_is_that_of_github() -> None:
    assert anchor("What `run` does, and [why](x.md)") == "what-run-does-and-why"
