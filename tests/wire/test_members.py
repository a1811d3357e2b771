"""Where the members of a long JSON object are: found in steps, and as a reader of the whole finds them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.wire import STEP_BYTES, Steps, TooManyMembers, done
from hivemind_trio.wire.body.json_members import MEMBERS_MAX, Spans, members

WANTED = frozenset({"model", "messages", "é"})

texts = st.text(st.sampled_from('ab"\\[]{},:\n é'), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(st.sampled_from(sorted(WANTED)) | texts, json_values, max_size=6)


@pytest.fixture(params=[(8, 4), (64, 8), (STEP_BYTES, 64)], ids=str)
def _sizes(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps so short that every value crosses many."""
    step, tiny = request.param
    monkeypatch.setattr("hivemind_trio.wire.body.json_members.STEP_BYTES", step)
    monkeypatch.setattr("hivemind_trio.wire.body.json_members.TINY_BYTES", tiny)


def read(text: bytes) -> dict[str, Any] | None:
    spans = done(members(text, WANTED))
    return None if spans is None else {name: json.loads(text[slice(*each[-1])]) for name, each in spans.items()}


def steps_of(steps: Steps[Spans | None]) -> tuple[int, Spans | None]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


@pytest.mark.usefixtures("_sizes")
class TestShortSteps:
    @pytest.mark.slow
    @given(objects, st.booleans(), st.sampled_from([None, 1, "\t"]))
    def test_members_are_what_a_reader_of_the_whole_finds(self, body: Any, ascii_only: bool, indent: Any) -> None:
        text = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode()

        assert read(text) == {name: value for name, value in body.items() if name in WANTED}

    @given(json_values, st.integers(0, 40))
    def test_what_is_no_whole_object_has_none(self, value: Any, cut: int) -> None:
        text = json.dumps({"model": value}).encode()

        assert read(text[: max(0, len(text) - 1 - cut)]) is None
        assert read(text + b"x") is None
        if not isinstance(value, dict):
            assert read(json.dumps(value).encode()) is None

    @pytest.mark.parametrize("depth", [1, 15, 16, 17, 40, 3_000])
    def test_any_depth_is_counted(self, depth: int) -> None:
        nest = b"[" * depth + b'"]"' + b"]" * depth
        text = b'{"x":[' + b",".join([nest] * 5) + b'],"model":"m"}'

        assert read(text) == {"model": "m"}

    @pytest.mark.parametrize("backslashes", range(1, 12))
    def test_a_quote_behind_backslashes_ends_a_text_or_not(self, backslashes: int) -> None:
        inner = "a" * 5 + "\\" * backslashes + '"' + "]}" + "\\" * backslashes
        text = json.dumps({"x": inner, "messages": [inner, [inner]], "model": "m"}).encode()

        assert read(text) == {"messages": [inner, [inner]], "model": "m"}


def test_a_member_that_is_said_twice_has_both_places() -> None:
    text = b'{"model":1, "\\u006dodel": [2]}'

    spans = done(members(text, WANTED))

    assert spans is not None
    assert [text[begin:end] for begin, end in spans["model"]] == [b"1", b"[2]"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [b'"word",', b'"\\"\\\\",', b"[],", b"[[[[]]]],", b"[" * 20 + b"]" * 20 + b",", b'{"a":1},', b"1,", b"   1,"],
)
def test_a_step_reads_no_more_than_its_bytes(unit: bytes) -> None:
    text = b'{"messages":[' + unit * ((2 << 20) // len(unit)) + b"1]}"

    count, spans = steps_of(members(text, WANTED))

    assert spans is not None
    # The first looks at a value are shorter, so there may be one step more.
    assert len(text) // STEP_BYTES - 2 <= count <= len(text) // STEP_BYTES + 2


@pytest.mark.slow
def test_short_members_are_read_many_in_a_step_and_not_without_end() -> None:
    def text(count: int) -> bytes:
        return b"{" + b",".join(b'"k%d":[[]]' % number for number in range(count)) + b"}"

    count, spans = steps_of(members(text(MEMBERS_MAX), WANTED))
    assert spans == {}
    assert count >= 10

    with pytest.raises(TooManyMembers, match="10,000 members"):
        done(members(text(MEMBERS_MAX + 1), WANTED))
