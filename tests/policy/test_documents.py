"""What the documents show is so: every policy, every value, every message and every command in them.

A reader pastes what stands in a README. So each `hmp` block is checked as it stands, with no more around it than the
text beside it says there is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import click
import pytest
from click.testing import CliRunner

from hivemind_trio.cli.main import main
from hivemind_trio.policy import MemoryFiles, check, render
from hivemind_trio.serve.autodetect import from_environment, policy_text

ROOT: Final = Path(__file__).parents[2]
SHIPPED: Final = tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "hivemind_trio/docs").glob("*.md")))
DOCUMENTS: Final = ("README.md", *SHIPPED, "grammar/README.md")
GUIDES: Final = ("policies/README.md", "hivemind_trio/sim/scenarios/README.md")
"""Have commands, but no policies."""
REFERENCE: Final = "<!-- reference:begin"

INCLUDED: Final = "hmp 1\n"
"""What `common/*.hmp` holds beside the example that includes it."""

AROUND: Final = {
    "budget team {": "provider anthropic { }\nlane batch { }\n",
}
"""First line of an example that is a part of a policy -> what the text beside it takes for granted."""


@attrs.frozen
class Example:
    """A fenced block."""

    at: str
    language: str
    text: str
    in_reference: bool


def examples() -> Iterator[Example]:
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        reference = text.find(REFERENCE) if REFERENCE in text else len(text)
        for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 1
            yield Example(f"{name}:{line}", block[1], block[2], block.start() > reference)


EXAMPLES: Final = list(examples())
POLICIES: Final = [one for one in EXAMPLES if one.language == "hmp" and not one.in_reference]
SHAPES: Final = [one for one in EXAMPLES if one.language == "hmp" and one.in_reference]
TESTS: Final = [one for one in POLICIES if one.text.startswith("test ")]
ON_ONE_SCREEN: Final = next(one.text for one in POLICIES if one.text.startswith("hmp 1") and "rule" in one.text)
"""The policy that the tests are for."""

MESSAGES: Final = [one for one in EXAMPLES if re.match(r"(error|warning|info)\[HM(?!501)", one.text)]
(FAILURE,) = [one for one in EXAMPLES if one.text.startswith("error[HM501]")]


def found_in(text: str) -> list[str]:
    """What `check` says of a policy, in short."""
    files = MemoryFiles({"team.hmp": text, "common/models.hmp": INCLUDED})
    return [f"{one.code} {one.message}" for one in check("team.hmp", files).diagnostics]


def context(example: Example) -> str:
    if example.text.startswith("test "):
        return ON_ONE_SCREEN
    return next((around for start, around in AROUND.items() if example.text.startswith(start)), "")


@pytest.mark.parametrize("example", POLICIES, ids=lambda one: one.at)
def test_an_example_checks(example: Example) -> None:
    # The first two show how a thing is written, before anything uses what they declare.
    unused = "HM308" if example.text.startswith("hmp 1") else "none"

    found = [one for one in found_in(context(example) + example.text) if not one.startswith(unused)]

    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("example", TESTS, ids=lambda one: one.at)
def test_what_is_said_of_tests_is_what_check_says(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("team.hmp").write_text(f"{ON_ONE_SCREEN}\n{example.text}", encoding="utf-8")

    shown, _, counts = CliRunner().invoke(main, ["check", "team.hmp"]).stdout.rpartition("tests: ")

    fails = "CI never takes a slot" in example.text
    assert shown == (f"{FAILURE.text}\nteam.hmp: 1 error\n" if fails else "team.hmp: no problems\n")
    assert ("failed" in counts) is fails


def test_every_context_is_that_of_an_example() -> None:
    assert all(any(one.text.startswith(start) for one in POLICIES) for start in AROUND)


# ---- the shapes of the reference ----

FILLED: Final = {
    "NAME": "it",
    '"GLOB"': '"gpt-*"',
    '"TEXT"': '"it"',
    "PROVIDER": "anthropic",
    "AGENT": "ci",
    "CONDITION": "stream",
    "PARTITION": "session",
    "...": "",
}


def filled(shape: str, *, options: bool) -> str:
    """A shape as a statement: with what stands in brackets, or without; of several words the first."""
    text = re.sub(r"\[(.*?)\]", r"\1" if options else "", shape)
    for word, put in FILLED.items():
        text = text.replace(word, put)
    return re.sub(r"([a-z]+)(\|[a-z]+)+", r"\1", text)


@pytest.mark.parametrize("options", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("example", SHAPES, ids=lambda one: one.at)
def test_a_declaration_is_written_as_the_reference_shows_it(example: Example, options: bool) -> None:
    around = "provider anthropic { }\nagent ci { }\n"

    found = found_in(filled(example.text, options=options) + around)

    # Nothing stands in the braces: a setting may be missing, a rule decides nothing, and nobody uses it.
    assert not [one for one in found if not one.startswith(("HM106", "HM303", "HM308", "HM502"))]


# ---- the table of values ----

WANTED_BY: Final = {
    "duration": "provider anthropic {{ timeout total {} }}",
    "count": "provider anthropic {{ queue {} }}",
    "size": "server {{ max-body {}; max-waiting 1 }}\nprovider anthropic {{ }}",
    "ratio": "provider anthropic {{ limits {{ requests 50/min; headroom {} }} }}",
    "money": "rule r when cost > {} {{ priority 2 }}\nprovider anthropic {{ }}",
    "price": 'model "gpt-*" {{ price input {} }}\nprovider anthropic {{ }}',
    "secret": "provider anthropic {{ key {} }}",
    "glob": "rule r when model ~ {} {{ priority 2 }}\nprovider anthropic {{ }}",
}
"""Kind of value -> a policy that takes one of them."""

BY_LOOK: Final = {
    r"\$.*/": "budget b {{ cost {} }}\nprovider anthropic {{ }}",
    r"\d.*/": "budget b {{ tokens {} }}\nprovider anthropic {{ }}",
    r"\d+\.\.\d+$": "provider anthropic {{ concurrency {} }}",
    r"\d+ms\.\.": "retry r {{ backoff {} }}\nprovider anthropic {{ retry r }}",
    r"\[\d": "retry r {{ on {} }}\nprovider anthropic {{ retry r }}",
    r"\[\"": "provider anthropic {{ serves {} }}",
}
"""The same of kinds that several settings take differently."""


def values() -> Iterator[tuple[str, str]]:
    text = (ROOT / "grammar/README.md").read_text(encoding="utf-8")
    section = text[text.index("## Values") : text.index("## Conditions")]
    for kind, written in re.findall(r"^\| (\w+) \| (.*?) \|", section, re.MULTILINE):
        for value in re.findall(r"`([^`]+)`", written):
            yield kind, value


@pytest.mark.parametrize(("kind", "value"), list(values()), ids=lambda text: text)
def test_a_value_of_the_table_is_one_of_its_kind(kind: str, value: str) -> None:
    wanted_by = WANTED_BY.get(kind) or next(text for look, text in BY_LOOK.items() if re.match(look, value))

    assert not found_in(wanted_by.format(value))


# ---- messages and commands ----


@pytest.mark.parametrize("example", MESSAGES, ids=lambda one: one.at)
def test_a_message_is_what_check_says(example: Example) -> None:
    line = re.search(r"^ *(\d+) \| (.*)$", example.text, re.MULTILINE)
    assert line is not None
    policy = "\n" * (int(line[1]) - 2) + f"provider anthropic {{\n{line[2]}\n}}\n"

    shown = render([check("team.hmp", MemoryFiles({"team.hmp": policy}))], "text")

    assert example.text in shown


def commands() -> Iterator[tuple[str, str, bool]]:
    """Every command line of this program: the document, the words, and whether it is to be typed (or is mentioned)."""
    for name in (*DOCUMENTS, *GUIDES):
        text = (ROOT / name).read_text(encoding="utf-8")
        for before, written in re.findall(r"(^|`|&& (?:\S*/)?)hivemind-trio ([^`#\n>]+)", text, re.MULTILINE):
            yield name, written.strip(), before != "`"


@pytest.mark.parametrize(("name", "written", "typed"), list(dict.fromkeys(commands())), ids=str)
def test_a_command_is_one_that_there_is(name: str, written: str, typed: bool) -> None:
    word, *rest = shlex.split(written)
    assert isinstance(main, click.Group)
    command = main.get_command(click.Context(main), word)

    assert command is not None
    if typed or rest:
        command.make_context(word, rest)  # raises for an option or an argument that there is not


COLUMNS: Final = 100
WRITTEN: Final = sorted(
    path
    for pattern in ("*.md", "*/README.md", "*/*/README.md", "hivemind_trio/**/*.md")
    for path in ROOT.glob(pattern)
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
"""All documents but the tables of results, which the benches write."""


def too_long(text: str) -> list[int]:
    """Return the lines over the limit, but for rows of tables and words that cannot be divided."""
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > COLUMNS and not line.lstrip().startswith("|") and len(line.split()) > 1
    ]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_line_of_a_document_has_100_columns_at_most(path: Path) -> None:
    assert too_long(path.read_text(encoding="utf-8")) == []


def test_the_documents_that_are_held_to_a_width_are_all() -> None:
    names = {str(path.relative_to(ROOT)) for path in WRITTEN}

    assert {*DOCUMENTS, *GUIDES, "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "tests/README.md"} <= names
    assert too_long("short\n" + "word " * 21 + "\n| " + "a row " * 20 + "|\n") == [2]


def test_the_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "hivemind_trio/docs/architecture.md").read_text(encoding="utf-8")
    named = {word for word in re.findall(r"`([\w./-]+)`", text) if "/" in word}
    modules = {name.replace(".", "/") + ".py" for name in re.findall(r"python -m ([\w.]+)", text)}
    places = (ROOT, ROOT / "hivemind_trio")

    assert len(named) > 20
    made = {name for name in named if re.search(r"HMnnn|NAME", name)}
    assert [name for name in (named - made) | modules if not any((place / name).exists() for place in places)] == []


def test_the_quick_start_works_on_the_policy_that_it_says_is_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## Quick start") :]
    block = section[section.index("hivemind-trio check") : section.index("hivemind-trio serve --policy")]
    lines = [shlex.split(line) for line in block.splitlines() if line.strip()]
    monkeypatch.chdir(tmp_path)
    Path("team.hmp").write_text(policy_text(from_environment({"ANTHROPIC_API_KEY": "sesame"})), encoding="utf-8")

    ended = {" ".join(words): CliRunner().invoke(main, words[1:]) for words in lines}

    assert [words[1] for words in lines] == ["check", "explain"]
    assert {line: result.output for line, result in ended.items() if result.exit_code} == {}
