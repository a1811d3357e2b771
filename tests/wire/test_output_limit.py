"""The limit of a request's output tokens is at most the one of the policy, and nothing else is another byte."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.dialects import DIALECTS
from hivemind_trio.model import Api
from hivemind_trio.wire import recognise, with_output_limit

MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
GEMINI, OLLAMA = "/v1beta/models/gemini-x:streamGenerateContent", "/api/chat"

REWRITTEN = [
    (MESSAGES, '{"model":"m","max_tokens": 9000, "x":[1, 2]}', '{"model":"m","max_tokens": 4000, "x":[1, 2]}'),
    (MESSAGES, '{ "model": "m" }', '{"max_tokens":4000, "model": "m" }'),
    (MESSAGES, '{"max_tokens":null}', '{"max_tokens":4000}'),
    (MESSAGES, '{"max_tokens":9000,"max_tokens":1e9}', '{"max_tokens":4000,"max_tokens":4000}'),
    (MESSAGES, '{"max_\\u0074okens":9000}', '{"max_\\u0074okens":4000}'),
    (MESSAGES, '{"max_tokens":' + "9" * 80 + "}", '{"max_tokens":4000}'),
    ("/v1/complete", '{"prompt":"x"}', '{"max_tokens_to_sample":4000,"prompt":"x"}'),
    (CHAT, '{"messages":[]}', '{"max_completion_tokens":4000,"messages":[]}'),
    (CHAT, '{"max_tokens":5000,"max_completion_tokens":9}', '{"max_tokens":4000,"max_completion_tokens":9}'),
    (RESPONSES, '{"input":"x"}', '{"max_output_tokens":4000,"input":"x"}'),
    (GEMINI, '{"contents":[]}', '{"generationConfig":{"maxOutputTokens":4000},"contents":[]}'),
    (GEMINI, '{"generationConfig":{}}', '{"generationConfig":{"maxOutputTokens":4000}}'),
    (GEMINI, '{"generationConfig":null}', '{"generationConfig":{"maxOutputTokens":4000}}'),
    (
        GEMINI,
        '{"generationConfig": {"temperature": 1}}',
        '{"generationConfig": {"maxOutputTokens":4000,"temperature": 1}}',
    ),
    (GEMINI, '{"generationConfig":{"maxOutputTokens":"9000"}}', '{"generationConfig":{"maxOutputTokens":4000}}'),
    (GEMINI, '{"generation_config":{"max_output_tokens":9000}}', '{"generation_config":{"max_output_tokens":4000}}'),
    (OLLAMA, '{"options":{"num_predict":-1,"seed":1}}', '{"options":{"num_predict":4000,"seed":1}}'),
    (OLLAMA, '{"model":"m"}', '{"options":{"num_predict":4000},"model":"m"}'),
]

KEPT = [
    (MESSAGES, '{"max_tokens": 4000}'),
    (MESSAGES, '{"max_tokens": "many"}'),
    (MESSAGES, '{"max_tokens": true}'),
    (CHAT, '{"max_tokens": 10.0}'),
    (GEMINI, '{"generationConfig": {"maxOutputTokens": "12"}}'),
    (GEMINI, '{"generationConfig": "none"}'),
    ("/v1/embeddings", '{"input": "x"}'),
    ("/v1/audio/speech", '{"input": "x"}'),
    ("/api/embed", '{"input": "x"}'),
    (MESSAGES, "not JSON"),
    (MESSAGES, "[]"),
]


@pytest.mark.parametrize(("path", "body", "expected"), REWRITTEN)
def test_a_limit_that_is_higher_or_missing_becomes_the_policys(path: str, body: str, expected: str) -> None:
    assert with_output_limit(path, body.encode(), "", 4_000, Api.OPENAI) == expected.encode()


@pytest.mark.parametrize(("path", "body"), KEPT)
def test_a_body_that_needs_no_other_limit_stays_as_it_is(path: str, body: str) -> None:
    assert with_output_limit(path, body.encode(), "", 4_000, Api.OPENAI) is None


@pytest.mark.parametrize(
    ("served_as", "name"),
    [(Api.OPENAI, "max_completion_tokens"), (Api.AZURE, "max_completion_tokens"), (Api.MISTRAL, "max_tokens")],
)
def test_a_missing_limit_of_a_chat_has_the_name_that_its_server_knows(served_as: Api, name: str) -> None:
    found = with_output_limit(CHAT, b'{"messages":[]}', "", 10, served_as)

    assert found is not None
    assert json.loads(bytes(found)) == {name: 10, "messages": []}


def test_a_compressed_body_comes_back_without_its_coding() -> None:
    body = gzip.compress(b'{"max_tokens":9000}')

    assert with_output_limit(MESSAGES, body, "gzip", 4_000, Api.ANTHROPIC) == b'{"max_tokens":4000}'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
LIMIT = st.none() | st.integers(-2, 20_000) | st.floats(0, 20_000)
PATHS = {
    MESSAGES: ("max_tokens",), CHAT: ("max_completion_tokens",), RESPONSES: ("max_output_tokens",),
    GEMINI: ("generationConfig", "maxOutputTokens"), OLLAMA: ("options", "num_predict"),
}  # fmt: skip


@given(
    path=st.sampled_from(sorted(PATHS)), rest=st.dictionaries(st.text(max_size=5), JSON, max_size=4),
    limit=st.just("none") | LIMIT, most=st.integers(1, 10_000), indent=st.none() | st.integers(0, 2),
    front=st.booleans(),
)  # fmt: skip
def test_what_is_sent_asks_for_no_more_than_the_policy_allows_and_else_for_the_same(
    path: str, rest: dict[str, Any], limit: Any, most: int, indent: int | None, front: bool
) -> None:
    *outer, name = PATHS[path]
    rest = {"prompt": "x"} | rest
    member = {} if limit == "none" else {name: limit}
    body = {**rest, outer[0]: member | {"seed": 1}} if outer else member | rest if front else rest | member

    found = with_output_limit(path, json.dumps(body, indent=indent).encode(), "", most, Api.OPENAI)

    sent = body if found is None else json.loads(bytes(found))
    holder = sent[outer[0]] if outer else sent
    expected = most if limit in ("none", None) or not 0 <= limit <= most else limit
    assert holder[name] == expected
    holder.pop(name)
    (body[outer[0]] if outer else body).pop(name, None)
    assert sent == body


def test_every_path_that_gets_a_limit_is_read_with_it() -> None:
    for dialect in DIALECTS.values():
        for one in dialect.endpoints:
            if one.output_max:
                member: Any = 77
                for name in reversed(one.output_max):
                    member = {name: member}
                path = dialect.usual_path
                assert recognise("POST", path, {}, json.dumps({"model": "m", **member}).encode()).tokens_max_out == 77


def test_a_thinking_budget_is_read() -> None:
    body = b'{"model":"m","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":8000}}'

    assert recognise("POST", MESSAGES, {}, body).tokens_thinking == 8_000
