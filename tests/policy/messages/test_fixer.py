"""Every help, applied literally to the file that it is about, mends it: of all diagnostics that carry a fix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hivemind_trio.policy import (
    PAGES,
    Checked,
    Diagnostic,
    Edit,
    Fix,
    MemoryFiles,
    Severity,
    Span,
    amended,
    applied,
    check,
    diff,
    fix,
    fixable,
    made_worse,
)
from hivemind_trio.policy.source.edits import addition, deletion
from tests.policy.regenerate import FOLDER, Case, cases

from .test_helps import broken

ANTHROPIC = "provider anthropic { }\n"


def golden() -> dict[str, dict[str, str]]:
    """Name -> texts of the files, of every golden case and of every page's example."""
    found = {
        path.stem: {"team.hmp": path.read_bytes().decode("utf-8", "replace")}
        for path in FOLDER.glob("*.hmp")
        if path.is_file()
    }
    for folder in (path for path in FOLDER.iterdir() if path.is_dir()):
        found[folder.name] = {
            file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in folder.rglob("*.hmp")
        }
    found |= {f"{page.code}_page": {"team.hmp": page.wrong} for page in PAGES.values() if page.wrong}
    return dict(sorted(found.items()))


GOLDEN = golden()


def checked(texts: Mapping[str, str] | str) -> Checked:
    return check("team.hmp", MemoryFiles({"team.hmp": texts} if isinstance(texts, str) else texts))


def with_fix(policy: Checked) -> list[Diagnostic]:
    return fixable(policy, unsafe=True)


FIXED = {name: texts for name, texts in GOLDEN.items() if with_fix(checked(texts))}


def number(policy: Checked, found: Diagnostic) -> int:
    return sum((one.code, one.message) == (found.code, found.message) for one in policy.diagnostics)


def new_errors(before: Checked, after: Checked) -> list[Diagnostic]:
    known = Counter((one.code, one.message) for one in before.diagnostics)
    new = []
    for one in after.diagnostics:
        known[one.code, one.message] -= 1
        if known[one.code, one.message] < 0 and one.severity is Severity.ERROR:
            new.append(one)
    return new


def assert_it_mends(texts: Mapping[str, str], before: Checked, found: Diagnostic) -> None:
    """The diagnostic is gone, there is no new error, and nothing but the edited spans has changed."""
    assert found.fix is not None
    after = amended(before, found.fix.edits, MemoryFiles(texts))

    assert number(after, found) < number(before, found), (found, after.sources)
    new = new_errors(before, after)
    if found.code.startswith("HM00"):  # a syntax error hides others of its statement: those are not the fix's
        new = [one for one in new if one.code.startswith("HM00")]
    assert not new, (found, new, after.sources)
    for source in range(len(before.sources)):
        assert_untouched(before, after, source, [one for one in found.fix.edits if one.span.source == source])


def assert_untouched(before: Checked, after: Checked, source: int, edits: list[Edit]) -> None:
    """The text between the edits is the same, letter by letter."""
    old, new, at, moved = before.sources[source].text, after.sources[source].text, 0, 0
    for edit in sorted(edits):
        assert old[at : edit.span.start] == new[at + moved : edit.span.start + moved]
        put = edit.text.replace("\n", "\r\n") if "\r\n" in old else edit.text
        moved += len(put) - (edit.span.end - edit.span.start)
        at = edit.span.end
    assert old[at:] == new[at + moved :]
    if old.count("\n") == old.count("\r\n") > 0:
        assert new.count("\n") == new.count("\r\n"), new


@pytest.mark.parametrize("name", FIXED)
def test_every_fix_of_every_code_mends_its_example(name: str) -> None:
    texts = FIXED[name]
    policy = checked(texts)

    for found in with_fix(policy):
        assert_it_mends(texts, policy, found)


NO_HELP = {
    "HM112_was": "`extends` of itself",
    "HM208_message": "no secret is allowed in a message",
}
"""Cases in which a choice brings another error, so that editors do not offer it."""


@pytest.mark.parametrize("case", [case for case in cases() if case.name not in NO_HELP], ids=lambda case: case.name)
def test_every_choice_of_a_golden_file_mends_it(case: Case) -> None:
    policy = case.make()
    files = MemoryFiles({path: source.text.encode() for path, source in zip(policy.paths, policy.sources, strict=True)})

    for found in policy.diagnostics:
        for choice in found.choices:
            after = amended(policy, choice.edits, files)

            said = [[(one.code, one.message) for one in some.diagnostics] for some in (policy, after)]
            assert made_worse(policy, after) is None, choice
            assert said[1].count((found.code, found.message)) < said[0].count((found.code, found.message)), choice


@pytest.mark.parametrize("name", FIXED)
def test_fixes_applied_together_leave_none_that_helps_and_change_nothing_when_repeated(name: str) -> None:
    texts = FIXED[name]
    policy = checked(texts)

    once = fix(policy, MemoryFiles(texts), unsafe=True)
    again = fix(once.checked, MemoryFiles({**texts, **once.texts}), unsafe=True)

    assert once.applied
    assert (again.texts, again.applied) == ({}, ())
    assert made_worse(policy, once.checked) is None or any(one.found.code.startswith("HM00") for one in once.applied)


# ---- variants ----


def with_blank_lines(text: str) -> str:
    return f"\n\n{text}\n\n"


def with_comments(text: str) -> str:
    return f'# one {{ "two" && // three\n{text.rstrip()}\n# the end [\n'


def with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def without_last_line_end(text: str) -> str:
    return text.rstrip("\r\n")


def beside_others(text: str) -> str:
    return f'let of-no-use = "x"\n{text.rstrip()}\nteam unrelated {{ }}\nagent somebody {{ team unrelated }}\n'


def with_wide_letters(text: str) -> str:
    return f"# \N{PILE OF POO} \u0301\N{HEBREW LETTER ALEF}\n{text}"


VARIANTS = (with_blank_lines, with_comments, with_crlf, without_last_line_end, beside_others, with_wide_letters)


@st.composite
def variants(draw: st.DrawFn) -> dict[str, str]:
    """The files of an example, written otherwise, and perhaps included by another file."""
    texts = dict(FIXED[draw(st.sampled_from(sorted(FIXED)))])
    name = draw(st.sampled_from(sorted(texts)))
    for change in draw(st.lists(st.sampled_from(VARIANTS), max_size=3, unique=True)):
        texts[name] = change(texts[name])
    if set(texts) == {"team.hmp"} and draw(st.booleans()):
        texts = {"team.hmp": 'include "parts/*.hmp"\n', "parts/one.hmp": texts["team.hmp"]}
    return texts


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(variants())
@example({"team.hmp": 'include "p.hmp"\r\n', "p.hmp": 'provider openai {\r\n  serves ["gpt-*"\r\n  queue 5\r\n}\r\n'})
@example({"team.hmp": "lane a {\r\n  weight 2\r\n\r\nlane b { }\r\nrule r { lane a }\r\n"})
def test_every_fix_mends_the_file_however_it_is_written(texts: dict[str, str]) -> None:
    policy = checked(texts)

    for found in with_fix(policy):
        assert_it_mends(texts, policy, found)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(broken().map(lambda text: {"team.hmp": text}), variants()), st.booleans())
def test_fixing_ends_and_never_adds_a_syntax_error(texts: dict[str, str], unsafe: bool) -> None:
    policy = checked(texts)

    once = fix(policy, MemoryFiles(texts), unsafe=unsafe)
    again = fix(once.checked, MemoryFiles({**texts, **once.texts}), unsafe=unsafe)

    assert (again.texts, again.applied) == ({}, ())
    assert all(one.found.fix is not None and (unsafe or one.found.fix.is_safe) for one in once.applied)
    assert not [one for one in new_errors(policy, once.checked) if one.code.startswith("HM00")]
    assert set(once.texts) <= set(policy.paths)
    if not any(one.found.code.startswith("HM00") for one in once.applied):
        assert new_errors(policy, once.checked) == []


# ---- helps in words ----

_WRITE = re.compile(r"\b(?:write|did you mean|delete it|leave it out|delete the comment)\b")
_NOT_TO_PASTE = re.compile(r"NAME|\.\.\.|\"path\"|//host|such as|`, `| or ")
"""A placeholder, an example, or several to choose from: the author decides."""

IN_WORDS = {
    "HM008", "HM011",  # a path, which nobody else knows
    "HM106",  # a setting that is missing: the help shows an example
    "HM112",  # a value that is missing: the help shows the shape
    "HM201",  # a value of another kind: the help shows the shape
    "HM212",  # `22:30` is within an hour; a list of flags
    "HM215",  # `!=` and `in` with a glob: the comparison is to be turned round
    "HM218",  # a status within a range
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_a_help_that_says_what_to_write_carries_the_edit(name: str) -> None:
    for found in checked(GOLDEN[name]).diagnostics:
        says = _WRITE.search(found.help) and not _NOT_TO_PASTE.search(found.help)
        if says and found.code not in IN_WORDS:
            assert found.fix is not None, found


# ---- what is safe ----


@pytest.mark.parametrize(
    ("text", "is_safe"),
    [
        ("provider anthropic { concurency 4 }\n", True),
        ("rule r when stream && tools { priority 2 }\n" + ANTHROPIC, True),
        ("rule r when stream == true { priority 2 }\n" + ANTHROPIC, True),
        ('let x = "a"\n' + ANTHROPIC, True),
        ("lane a { reserve 2 }\n" + ANTHROPIC, False),  # it reserves slots although no call is in it
        ("lane batch { }\nrule r { lane bacth }\n" + ANTHROPIC, False),
        ("lane a { weight -5 }\nrule r { lane a }\n" + ANTHROPIC, False),
        ("budget b { cost €5/day }\n" + ANTHROPIC, False),
        ('provider lab { api vllm; base "http://10.0.0.7"; key env(K) }\n', False),
    ],
)
def test_a_fix_that_guesses_a_name_or_an_amount_or_moves_a_limit_is_unsafe(text: str, is_safe: bool) -> None:
    found = with_fix(checked(text))
    safe = fix(checked(text), MemoryFiles({"team.hmp": text}))
    unsafe = fix(checked(text), MemoryFiles({"team.hmp": text}), unsafe=True)

    assert [one.fix.is_safe for one in found if one.fix is not None] == [is_safe]
    assert bool(safe.texts) is is_safe
    assert unsafe.texts


SAME = [name for name in FIXED if name.startswith(("HM215", "HM308_let", "HM309", "HM903", "HM904_nothing"))]


@pytest.mark.parametrize("name", SAME)
def test_a_safe_fix_of_a_warning_changes_nothing_that_the_policy_does(name: str) -> None:
    policy = checked(FIXED[name])

    result = fix(policy, MemoryFiles(FIXED[name]))

    assert policy.program is not None
    assert not diff(policy, result.checked), result.texts


# ---- edits ----


@pytest.mark.parametrize(
    ("text", "part", "after"),
    [
        ("a { x 1; y 2 }", "x 1", "a { y 2 }"),
        ("a { x 1; y 2 }", "y 2", "a { x 1 }"),
        ("a { x 1 }", "x 1", "a { }"),
        ("a {\n  x 1\n  y 2\n}\n", "x 1", "a {\n  y 2\n}\n"),
        ("a {\r\n  x 1\r\n  y 2\r\n}\r\n", "y 2", "a {\r\n  x 1\r\n}\r\n"),
        ("x 1  # why\ny 2\n", "x 1", "# why\ny 2\n"),
        ("x 1 # why\n", "# why", "x 1\n"),
        ("x 1;\ny 2\n", "x 1", "y 2\n"),
        ("y 2\nx 1", "x 1", "y 2\n"),
    ],
)
def test_a_deleted_statement_takes_its_separator_with_it_and_no_comment(text: str, part: str, after: str) -> None:
    start = text.index(part)

    assert applied(text, [deletion(text, Span(0, start, start + len(part)))]) == after


@pytest.mark.parametrize(("text", "after"), [("", "x\n"), ("a", "a\n\nx\n"), ("a\n", "a\n\nx\n"), ("\n", "\nx\n")])
def test_an_added_declaration_stands_on_its_own_line(text: str, after: str) -> None:
    assert applied(text, [addition(text, 0, "x")]) == after


def test_of_two_fixes_that_overlap_one_is_applied_and_the_other_is_looked_at_again() -> None:
    text = 'rule r when 1k < tokens.in < 5k && model ~ "x" || !stream { priority 2, deadline 5m }\n' + ANTHROPIC

    result = fix(checked(text), MemoryFiles({"team.hmp": text}))

    assert [one for one in result.checked.diagnostics if one.severity is Severity.ERROR] == []
    assert (
        'tokens.in > 1k and tokens.in < 5k and model == "x" or not stream { priority 2; deadline 5m }'
        in (result.texts["team.hmp"])
    )


def test_a_fix_that_would_bring_a_new_error_is_not_applied() -> None:
    # `people` is the likeliest name of both, and two lanes cannot have it.
    text = "providr anthropic { }\nprovider anthropic { }\n"

    result = fix(checked(text), MemoryFiles({"team.hmp": text}))

    assert (result.texts, result.applied) == ({}, ())


@pytest.mark.parametrize("harmless", [1, 7])
def test_of_many_fixes_only_those_that_do_harm_are_left_out(harmless: int) -> None:
    # The error of the first fix is on the lines of others: the second `anthropic`.
    rules = "".join(f"rule r{number} {{ priorityy {number} }}\n" for number in range(harmless))
    text = f"providr anthropic {{ }}\nprovider anthropic {{ concurency 4 }}\n{rules}"

    result = fix(checked(text), MemoryFiles({"team.hmp": text}))

    assert result.texts["team.hmp"] == text.replace("concurency", "concurrency").replace("priorityy", "priority")
    assert [one.found.code for one in result.applied] == ["HM102"] * (harmless + 1)


def test_harmful_fixes_cost_no_check_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = "".join(f"providr p{number} {{ }}\nrule r{number} {{ priorityy 1 }}\n" for number in range(40))
    text, checks = ANTHROPIC + rules, 0

    def counted(*args: object, **options: object) -> Checked:
        nonlocal checks
        checks += 1
        return check(*args, **options)  # type: ignore[arg-type]  # as it is called

    monkeypatch.setattr("hivemind_trio.policy.fixer.check", counted)
    result = fix(checked(text), MemoryFiles({"team.hmp": text}))

    assert len(result.applied) == 40
    assert checks < 60


def test_a_fix_that_does_not_help_is_not_applied() -> None:
    text = "provider anthropic { concurency 4 }\n"
    policy = checked(text)
    (found,) = policy.diagnostics
    useless = attrs.evolve(found, fix=Fix.replacing(Span(0, 0, 0), "# why\n"))

    result = fix(attrs.evolve(policy, diagnostics=(useless,)), MemoryFiles({"team.hmp": text}))

    assert (result.texts, result.applied) == ({}, ())


def test_a_fix_knows_the_text_that_replaces_the_span_of_its_diagnostic() -> None:
    (found,) = checked("provider anthropic { concurency 4 }\n").diagnostics

    assert found.fix == Fix((Edit(found.span, "concurrency"),))
    assert found.replacement == "concurrency"
