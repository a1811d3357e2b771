"""What `let` stands for is bounded: in circles, in words and in levels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Request
from hivemind_trio.policy import Checked, MemoryFiles, check

PROVIDER = "provider anthropic { }\n"


def checked(text: str) -> Checked:
    return check("team.hmp", MemoryFiles({"team.hmp": text}))


def found(text: str) -> list[tuple[str, str]]:
    result = checked(text)
    source = result.sources[0].text
    return [(one.code, source[one.span.start : one.span.end]) for one in result.diagnostics]


def doubling(first: str, join: str, times: int) -> str:
    """Each twice the one before."""
    return f"let c0 = {first}\n" + "".join(f"let c{n} = {join.format(f'c{n - 1}')}\n" for n in range(1, times))


DOUBLED = {
    "conditions": ("stream", "{0} and {0}", "rule r when c59 {{ priority 2 }}\nprovider anthropic {{ }}\n"),
    "either": ("stream", "{0} or not {0}", "rule r when c59 {{ priority 2 }}\nprovider anthropic {{ }}\n"),
    "lists in a condition": (
        '["a"]',
        "[{0}, {0}]",
        "rule r when model in c59 {{ priority 2 }}\nprovider anthropic {{ }}\n",
    ),
    "lists in a setting": ('["a"]', "[{0}, {0}]", "provider anthropic {{ serves c59 }}\n"),
}


@pytest.mark.parametrize(("first", "join", "use"), DOUBLED.values(), ids=DOUBLED)
def test_sixty_lets_that_double_are_an_error_where_they_become_too_large(first: str, join: str, use: str) -> None:
    errors = found(doubling(first, join, 60) + use.format())

    assert {code for code, _ in errors} == {"HM007"}
    assert errors[0][1] in ("c13", "c14")  # of ten thousand words


@pytest.mark.parametrize("length", [70, 1_000])
@pytest.mark.parametrize(("first", "join"), [("stream", "not {}"), ('["a"]', "[{}]"), ("stream", "({} or tools)")])
def test_a_chain_of_lets_has_a_depth(first: str, join: str, length: int) -> None:
    errors = found(doubling(first, join, length) + PROVIDER)

    assert [name for code, name in errors if code == "HM007"] == ["c64"]
    assert checked(doubling(first, join, 60) + PROVIDER).program is not None


def test_a_chain_of_mere_names_has_one_too() -> None:
    for length, codes in ((3, []), (50, []), (1_000, ["HM007"])):
        rule = f"rule r when model == c{length - 1} {{ priority 2 }}\n"
        assert [code for code, _ in found(doubling('"a"', "{}", length) + rule + PROVIDER)] == codes


@pytest.mark.slow
def test_what_is_as_deep_and_as_wide_as_allowed_is_compiled() -> None:
    deepest = doubling("stream", "not {}", 64)
    brackets = "(tools or images and " * 63 + "c63" + ")" * 63
    program = checked(f"{deepest}rule r when {brackets} {{ priority 2 }}\n{PROVIDER}").program
    assert program is not None
    assert program.decide(Request(tools=True)).priority == 2
    assert program.decide(Request()).priority == 0

    widest = "let c0 = [" + ", ".join(f'"m{number}"' for number in range(10_000)) + "]\n"
    assert checked(f"{widest}rule r when model in c0 {{ priority 2 }}\n{PROVIDER}").program is not None


def test_what_uses_what_is_too_large_is_not_a_second_error() -> None:
    text = doubling("stream", "{0} and {0}", 15) + f"let d = c14\nrule r when d and c14 {{ priority 2 }}\n{PROVIDER}"

    assert [code for code, _ in found(text)] == ["HM007"]


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=6))
def test_any_graph_of_lets_has_an_error_exactly_if_it_has_a_circle(graph: list[list[int]]) -> None:
    names = len(graph)
    graph = [[used for used in uses if used < names] for uses in graph]
    text = "".join(
        f"let c{n} = {' and '.join(['stream', *(f'c{used}' for used in uses)])}\n" for n, uses in enumerate(graph)
    )

    reach = [set(uses) for uses in graph]
    for _ in graph:
        reach = [one.union(*(reach[used] for used in one)) for one in reach]
    circular = {f"c{number}" for number, one in enumerate(reach) if number in one}
    errors = [(code, name) for code, name in found(text + PROVIDER) if code != "HM308"]

    assert {code for code, _ in errors} == ({"HM110"} if circular else set())
    assert {name for _, name in errors} <= circular
    assert not circular & set(checked(text + PROVIDER).declarations.lets)
