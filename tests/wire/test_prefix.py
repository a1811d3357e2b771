"""What counts as the beginning of a prompt, in each dialect."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.wire import prompt_prefix

PATH = "/v1/messages"


def prefix(path: str = PATH, **fields: Any) -> str:
    return prompt_prefix(path, {}, json.dumps(fields).encode())


MESSAGES: dict[str, Any] = {
    "model": "m",
    "system": "be brief",
    "tools": [{"name": "t"}],
    "messages": [{"role": "user", "content": "a"}],
}
RESPONSES: dict[str, Any] = {"model": "m", "instructions": "be brief", "input": "a"}
SYSTEM = {"role": "system", "content": "be brief " * 600}
CHAT: dict[str, Any] = {"model": "m", "messages": [SYSTEM, {"role": "user", "content": "a"}]}
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "be brief"}]},
    "contents": [{"parts": [{"text": "a"}]}],
}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MESSAGES, MESSAGES | {"messages": [{"role": "user", "content": "b"}], "max_tokens": 5}),
        (RESPONSES, RESPONSES | {"input": "b", "stream": True}),
        (CHAT, CHAT | {"messages": [SYSTEM, {"role": "user", "content": "b"}]}),
        (GEMINI, GEMINI | {"contents": []}),
    ],
    ids=["messages", "responses", "chat", "gemini"],
)
def test_what_comes_later_does_not_count(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert prefix(**one) == prefix(**other) != ""


@pytest.mark.parametrize(
    "other",
    [{"system": "be long"}, {"tools": []}, {"model": "n"}, {"prompt_cache_key": "k"}],
    ids=["system", "tools", "model", "cache key"],
)
def test_what_a_cache_goes_by_counts(other: dict[str, Any]) -> None:
    assert prefix(**MESSAGES) != prefix(**(MESSAGES | other))


def test_where_nothing_stands_before_it_the_talk_itself_counts() -> None:
    assert prefix(messages=[{"content": "a"}]) != prefix(messages=[{"content": "b"}])


def test_the_path_counts_for_it_may_name_the_model() -> None:
    assert prefix("/v1beta/models/a:generateContent", **GEMINI) != prefix("/v1beta/models/b:generateContent", **GEMINI)


def test_a_compressed_body_is_the_same_prompt() -> None:
    body = json.dumps(MESSAGES).encode()

    assert prompt_prefix(PATH, {"content-encoding": "gzip"}, gzip.compress(body)) == prompt_prefix(PATH, {}, body)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"nonsense", b'{"model":"m"}', b"\xff", b"[" * 50_000])
def test_what_has_no_prompt_has_no_prefix(body: bytes) -> None:
    assert prompt_prefix(PATH, {}, body) == ""


@given(st.text(), st.binary())
def test_any_bytes_have_an_answer(path: str, body: bytes) -> None:
    assert isinstance(prompt_prefix(path, {}, body), str)
