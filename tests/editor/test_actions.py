"""What is offered to mend a finding mends it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from hivemind_trio.editor import mends
from hivemind_trio.policy import Checked, Diagnostic, MemoryFiles, Severity, applied, check

GOLDEN: Final = Path(__file__).parents[1] / "policy" / "diagnostics"
CASES: Final = sorted(path for path in GOLDEN.glob("HM*.hmp") if path.is_file())
SMALL: Final = "provider anthropic { }\n"


def checked(text: str) -> Checked:
    return check("team.hmp", MemoryFiles({"team.hmp": text}))


def times(policy: Checked, code: str) -> int:
    return [one.code for one in policy.diagnostics].count(code)


def one_of(text: str, code: str) -> tuple[Checked, Diagnostic]:
    policy = checked(text)
    return policy, next(one for one in policy.diagnostics if one.code == code)


def offered(text: str, code: str) -> dict[str, str]:
    """Title -> the text with it done."""
    policy, found = one_of(text, code)
    files = MemoryFiles({"team.hmp": text})
    return {mend.title: applied(text, mend.edits) for mend in mends(policy, found, files)}


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_the_checker_would_put_there_is_offered_and_mends(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    policy = checked(text)
    found = [one for one in policy.diagnostics if one.replacement is not None]

    for one in found[:2]:
        best = next(mends(policy, one, MemoryFiles({"team.hmp": text})), None)
        assert best is not None, one
        assert one.fix is not None
        assert (best.edits, best.preferred) == (one.fix.edits, one.fix.is_safe)
        after = checked(applied(text, best.edits))
        assert times(after, one.code) < times(policy, one.code)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_with_what_is_offered_the_finding_is_gone(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    policy = checked(text)

    for one in [found for found in policy.diagnostics if found.help][:1]:
        for mend in mends(policy, one, MemoryFiles({"team.hmp": text})):
            if not mend.title.startswith("accept"):
                same = [(of.code, of.message) for of in checked(applied(text, mend.edits)).diagnostics]
                before = [(of.code, of.message) for of in policy.diagnostics]
                key = one.code, one.message
                assert same.count(key) < before.count(key), mend.title


MENDED: Final = {
    "a unit": ("lane a { deadline 5 }\n", "HM203", "write `5ms`", "lane a { deadline 5ms }\n"),
    "a whole setting": ("lane a { aging 1 }\n", "HM112", "write `aging 1 every 30s`", "lane a { aging 1 every 30s }\n"),
    "a colon": ("lane a { weight: 4 }\n", "HM001", "write `weight 4`", "lane a { weight 4 }\n"),
    "a missing declaration": (
        "rule r { lane a }\n", "HM107", "add `lane a { }`", "rule r { lane a }\n\nlane a { }\n",
    ),
    "a missing setting": (
        'provider p { base "https://a" }\n', "HM106", "add `api openai`",
        'provider p { api openai; base "https://a" }\n',
    ),
    "a missing setting, on lines": (
        "budget b {\n  window sliding\n}\n", "HM106", "add `cost $20/day`",
        "budget b {\n  cost $20/day\n  window sliding\n}\n",
    ),
    "what nothing uses": (
        "lane a { }\nlane b { }\nrule r { lane a }\n", "HM308", "delete `b`", "lane a { }\nrule r { lane a }\n",
    ),
    "a glob": (
        'rule r when model == "a*" { }\n', "HM215", 'write `model ~ "a*"`', 'rule r when model ~ "a*" { }\n',
    ),
    "a brace": ("lane a { weight 2\n", "HM004", "add `}`", "lane a { weight 2\n}\n"),
    "a quote": (
        'provider openai { serves ["gpt-*] }\n', "HM002", 'write `"gpt-*"`', 'provider openai { serves ["gpt-*"] }\n',
    ),
    "a secret": ('agent a { token "hunter2" }\n', "HM208", "write `env(NAME)`", "agent a { token env(NAME) }\n"),
    "every one of several signs": (
        "rule r when stream && tools && images { }\n", "HM001", "write `and`",
        "rule r when stream and tools && images { }\n",
    ),
    "a sign without blanks": (
        "rule r when stream||tools { }\n", "HM001", "write `or`", "rule r when stream or tools { }\n",
    ),
    "a list that is not declared": (
        "rule r when model ~ cheap { }\n", "HM212", 'add `let cheap = ["claude-haiku-*"]`',
        'rule r when model ~ cheap { }\n\nlet cheap = ["claude-haiku-*"]\n',
    ),
    "a list that its line ends": (
        'provider openai {\n  serves ["gpt-*"  # why\n  queue 5\n}\n', "HM004", "add `]`",
        'provider openai {\n  serves ["gpt-*"]  # why\n  queue 5\n}\n',
    ),
    "a brace before the next declaration": (
        "lane a {\n  weight 2\n\nlane b { }\nrule r { lane a }\nrule s { lane b }\n", "HM004", "add `}`",
        "lane a {\n  weight 2\n\n}\nlane b { }\nrule r { lane a }\nrule s { lane b }\n",
    ),
    "an allow of nothing": (
        "lane a { } # hmp: allow HM215 why\nrule r { lane a }\n", "HM904", "delete the comment",
        "lane a { }\nrule r { lane a }\n",
    ),
    "an allow of nothing, on its line": (
        "# hmp: allow HM215 why\nlane a { }\nrule r { lane a }\n", "HM904", "delete the comment",
        "lane a { }\nrule r { lane a }\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "code", "title", "after"), MENDED.values(), ids=MENDED)
def test_mended(text: str, code: str, title: str, after: str) -> None:
    found = offered(SMALL + text, code)

    assert found[title] == SMALL + after
    assert times(checked(found[title]), code) < times(checked(SMALL + text), code)


def test_a_warning_can_be_accepted_and_an_error_cannot() -> None:
    text = SMALL + "  lane a { } # here\n"
    after = offered(text, "HM308")["accept HM308 here"]

    assert after == SMALL + "  # hmp: allow HM308 why it is meant so\n" + "  lane a { } # here\n"
    assert checked(after).diagnostics == ()
    assert not any("accept" in title for title in offered("lane a { weight: 4 }\n", "HM001"))


def test_a_mend_that_would_break_something_else_is_not_offered() -> None:
    # `people` is the likeliest, and with it the name would be declared twice.
    text = SMALL + "lane people { }\nrule r { lane people }\nprovidr anthropic { }\n"

    assert offered(text, "HM101") == {}


@pytest.mark.slow
def test_findings_of_every_severity_are_among_the_cases() -> None:
    found = {one.severity for path in CASES for one in checked(path.read_text(encoding="utf-8")).diagnostics}

    assert found == set(Severity)
