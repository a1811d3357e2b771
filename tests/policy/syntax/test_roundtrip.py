"""A policy that is laid out anew is the same policy. Those here compile; `test_format.py` has any text."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.policy import Checked, MemoryFiles, check, format_text
from hivemind_trio.policy.syntax.ast import Let
from hivemind_trio.policy.syntax.parser import parse
from tests.policy.drawn import Drawn, policies
from tests.policy.layouts import bare
from tests.policy.strategies import Meant, Scope, conditions, requests


def compiled(text: str) -> Checked:
    checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
    assert checked.program is not None, checked.diagnostics
    return checked


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 4)
@given(drawn=policies(), data=st.data())
def test_a_policy_that_is_laid_out_is_the_same_tree_stays_and_decides_the_same(
    drawn: Drawn, data: st.DataObject
) -> None:
    formatted = format_text(drawn.text)

    tree, problems = parse(formatted, 0)
    assert not problems
    assert bare(tree.statements) == bare(parse(drawn.text, 0)[0].statements)
    assert format_text(formatted) == formatted

    before, after = compiled(drawn.text).program, compiled(formatted).program
    assert before is not None
    assert after is not None
    # Places move, and with them the names of places; all else stays.
    for table in ("providers", "lanes", "teams", "agents", "retries"):
        old, new = getattr(before, table), getattr(after, table)
        assert list(old) == list(new)
        assert [attrs.evolve(one, at="") for one in old.values()] == [attrs.evolve(one, at="") for one in new.values()]
    for request in data.draw(st.lists(requests(), min_size=3, max_size=3)):
        first, second = before.decide(request), after.decide(request)
        assert attrs.evolve(first, decided={}) == attrs.evolve(second, decided={})
        assert [(who.kind, who.name) for who in first.decided.values()] == [
            (who.kind, who.name) for who in second.decided.values()
        ]


NAMES = Scope(names={"agent": ("ci", "unknown"), "team": ("none",)})


@pytest.mark.slow
@given(conditions(NAMES, depth=3))
def test_a_condition_keeps_its_tree(condition: Meant) -> None:
    text = f"let busy = {condition.text}\n"
    tree, problems = parse(text, 0)
    assert not problems
    (let,) = tree.statements
    assert isinstance(let, Let)

    formatted = format_text(text)

    assert bare(parse(formatted, 0)[0].statements) == bare(tree.statements)
    assert format_text(formatted) == formatted


@pytest.mark.slow
@given(conditions(NAMES, depth=3))
def test_brackets_around_a_condition_say_nothing(condition: Meant) -> None:
    plain = parse(f"rule r when {condition.text} {{ }}", 0)
    within = parse(f"rule r when (({condition.text})) {{ }}", 0)

    assert bare(plain[0].statements) == bare(within[0].statements)
