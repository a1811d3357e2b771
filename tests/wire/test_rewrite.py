"""Another model in a request, and nothing else."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.wire.request.model_rewrite import with_model

MESSAGES = b"/v1/messages"


def test_every_other_field_stays_as_it_is() -> None:
    body = b'{"messages": [ {"role":"user", "model": "claude-opus-4"} ],\n "model" : "claude-opus-4", "n": 1.50e1}'

    path, sent = with_model(MESSAGES, body, "", "claude-haiku-4-5") or pytest.fail("not rewritten")

    assert path == MESSAGES
    assert sent == body.replace(b': "claude-opus-4", "n"', b': "claude-haiku-4-5", "n"')


def test_a_model_that_is_named_twice_is_replaced_twice() -> None:
    _, sent = with_model(MESSAGES, b'{"model":"a","\\u006dodel": "b"}', "", "c") or pytest.fail("not rewritten")

    assert sent == b'{"model":"c","\\u006dodel": "c"}'


def test_a_compressed_body_comes_back_plain() -> None:
    _, sent = with_model(MESSAGES, gzip.compress(b'{"model":"a"}'), "gzip", "b") or pytest.fail("not rewritten")

    assert sent == b'{"model":"b"}'


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/v1beta/models/gemini-pro:streamGenerateContent", b"/v1beta/models/gemini%20x:streamGenerateContent"),
        (b"/v1/projects/p/locations/l/publishers/google/models/a:generateContent",
         b"/v1/projects/p/locations/l/publishers/google/models/gemini%20x:generateContent"),
        (b"/openai/deployments/gpt-4o/chat/completions", b"/openai/deployments/gemini%20x/chat/completions"),
    ],
)  # fmt: skip
def test_where_the_path_names_it_the_path_changes(path: bytes, expected: bytes) -> None:
    assert with_model(path, b'{"contents": [ ]}', "", "gemini x") == (expected, b'{"contents": [ ]}')


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"input": "x"}', b"\xff", b'{"model": "a"'])
def test_what_says_nowhere_which_model_it_asks_for_is_left_alone(body: bytes) -> None:
    assert with_model(MESSAGES, body, "", "b") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(), json_values), st.text())
def test_any_body_means_the_same_but_for_its_model(fields: dict[str, object], model: str) -> None:
    body = json.dumps(fields | {"model": "a"}).encode()

    _, sent = with_model(MESSAGES, body, "", model) or pytest.fail("not rewritten")

    assert json.loads(sent) == fields | {"model": model}
