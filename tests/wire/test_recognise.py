"""What a body tells, and that no body can break the telling."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.model import Api
from hivemind_trio.wire import STEP_BYTES, Recognised, recognise, recognising
from hivemind_trio.wire.request.request_facts import IMAGE_TOKENS

ANTHROPIC: dict[str, Any] = {
    "model": "claude-x",
    "max_tokens": 500,
    "stream": True,
    "tools": [{"name": "ls"}],
    "metadata": {"user_id": "session-1", "depth": 3},
    "messages": [{"role": "user", "content": "hello"}],
}
CHAT: dict[str, Any] = {
    "model": "gpt-x",
    "max_completion_tokens": 600,
    "messages": [],
    "user": "u-1",
    "metadata": {"job": "nightly"},
}
RESPONSES: dict[str, Any] = {"model": "gpt-x", "max_output_tokens": 700, "input": "hi", "prompt_cache_key": "k-1"}

PATHS = (
    "/v1/messages",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1beta/models/g:generateContent",
    "/api/chat",
    "/v1/new",
    "/",
)
FIELDS = (
    *("model", "stream", "tools", "metadata", "user", "safety_identifier", "prompt_cache_key", "generationConfig"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "messages", "input", "prompt", "contents", "options"),
)


def ask(body: object, path: str = "/v1/messages", **headers: str) -> Recognised:
    return recognise("POST", path, headers, json.dumps(body).encode())


def test_an_anthropic_message_is_understood() -> None:
    asked = ask(ANTHROPIC)

    assert (asked.model, asked.stream, asked.tools, asked.images) == ("claude-x", True, True, False)
    assert asked.tokens_max_out == 500
    assert asked.metadata == {"user_id": "session-1"}
    assert asked.user == "session-1"


def test_an_openai_chat_is_understood() -> None:
    asked = ask(CHAT, "/v1/chat/completions")

    assert (asked.model, asked.stream, asked.tools) == ("gpt-x", False, False)
    assert asked.tokens_max_out == 600
    assert asked.metadata == {"job": "nightly"}
    assert asked.user == "u-1"


def test_an_openai_response_is_understood() -> None:
    asked = ask(RESPONSES, "/v1/responses")

    assert (asked.model, asked.tokens_max_out, asked.user) == ("gpt-x", 700, "k-1")


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({"generationConfig": {"maxOutputTokens": 9}}, 9),
        ({"options": {"num_predict": 8}}, 8),
        ({"options": {"num_predict": -1}}, 0),
        ({"max_tokens": -1}, 0),
        ({"max_tokens": True}, 0),
        ({"max_tokens": "500"}, 0),
        ({"max_tokens": 10**400}, 0),
        ({"max_tokens": 2**53}, 0),
        ({"max_tokens": 2**53 - 1}, 2**53 - 1),
        ({"max_tokens": 1.5}, 0),
        ({"max_tokens": None, "max_completion_tokens": 4}, 4),
        ({"options": {"num_predict": 10**400}}, 0),
        ({"options": [], "generationConfig": "x"}, 0),
    ],
)
def test_the_most_it_may_put_out_is_a_number_that_makes_sense_or_0(body: object, limit: int) -> None:
    assert ask(body).tokens_max_out == limit


@pytest.mark.parametrize(
    ("body", "user"),
    [
        ({"metadata": {"user_id": "a"}, "user": "b"}, "a"),
        ({"safety_identifier": "s", "user": "u"}, "s"),
        ({"user": "u", "prompt_cache_key": "k"}, "u"),
        ({"user": 7, "prompt_cache_key": "k"}, "k"),
        ({"metadata": "x", "user": "u"}, "u"),
        ({}, ""),
    ],
)
def test_whom_the_body_says_it_is_for(body: object, user: str) -> None:
    assert ask(body).user == user


@pytest.mark.parametrize(("tools", "has"), [([], False), (None, False), ({}, False), ([{}], True), ([{"a": 1}], True)])
def test_an_empty_list_of_tools_is_no_tools(tools: object, has: bool) -> None:
    assert ask({"tools": tools}).tools is has


def test_a_wrong_type_in_one_field_does_not_hide_the_others() -> None:
    asked = ask({"model": "m", "stream": [1], "metadata": 3, "max_tokens": {}, "tools": "x", "user": "u"})

    assert (asked.model, asked.stream, asked.user, asked.tokens_max_out) == ("m", False, "u", 0)


def test_tokens_are_estimated_from_the_text_and_not_from_pictures() -> None:
    text = ask({"model": "m", "messages": ["word " * 4_000]})
    picture = ask({"model": "m", "messages": [{"type": "image", "data": "A" * 1_000_000}, "word " * 4_000]})
    url = ask({"model": "m", "messages": [{"type": "image_url", "url": "data:image/png;base64," + "A" * 1_000_000}]})

    assert 4_500 < text.tokens_in < 5_500
    assert picture.images
    assert url.images
    assert not text.images
    # A picture counts as a picture: not as the 250,000 tokens of its base64.
    assert 1_000 < picture.tokens_in - text.tokens_in < 2_000
    assert url.tokens_in < 2_000


def test_a_tool_that_may_be_given_a_picture_is_none() -> None:
    items = {"image_url": {"type": "string", "description": "URL of an image"}, "images": {"type": "array"}}
    tools = [{"name": "send", "parameters": {"properties": items}}, {"search_content_types": ["text", "image"]}]
    inline = {"inlineData": {"type": "object"}}

    assert not ask({"model": "m", "messages": ["look"], "tools": [*tools, inline]}).images


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"inline_data": {"data": "AAAA", "mime_type": "image/png"}},
        {"role": "user", "content": "look", "images": ["AAAA"]},
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("before", [0, STEP_BYTES - 50, STEP_BYTES - 60])
def test_every_kind_of_picture_is_seen_once(part: Any, indent: int | None, before: int) -> None:
    body = json.dumps({"x": "a" * before, "model": "m", "messages": [part]}, indent=indent).encode()

    asked = recognise("POST", "/v1/messages", {}, body)
    assert asked.images
    assert asked.tokens_in < before // 4 + 2 * IMAGE_TOKENS


def test_codex_has_fewer_tokens_in_its_bytes_than_others() -> None:
    body = json.dumps({"model": "m", "input": "word " * 4_000}).encode()
    names = ("codex_exec/0.169.0 (Debian 12.0.0; x86_64)", "codex_cli_rs/0.80.0", "claude-cli/2.1.197", "curl/8", "")
    made = [recognise("POST", "/v1/responses", {"user-agent": name}, body) for name in names]

    assert [one.client for one in made] == ["codex", "codex", "claude-code", "", ""]
    assert [one.tokens_in for one in made] == [len(body) // 5] * 2 + [len(body) // 4] * 3


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "A" * 1_000_000, "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 1_000_000}},
        {"type": "document", "source": {"type": "base64", "data": "A" * 1_000_000}},
        {"inlineData": {"mimeType": "audio/wav", "data": "A" * 1_000_000}},
    ],
)
def test_sounds_and_documents_are_not_text_either(part: Any) -> None:
    assert ask({"model": "m", "messages": [part]}).tokens_in < 2_000


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [("gzip", gzip.compress), ("GZip ", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)],
)
def test_a_compressed_body_is_understood_from_a_copy(encoding: str, encode: Any) -> None:
    body = encode(json.dumps(ANTHROPIC).encode())

    asked = recognise("POST", "/v1/messages", {"content-encoding": encoding}, body)

    assert (asked.model, asked.stream, asked.tokens_max_out) == ("claude-x", True, 500)


@pytest.mark.slow
def test_a_body_that_inflates_without_end_is_not_followed() -> None:
    bomb = gzip.compress(b'{"model": "m", "x": "' + b"a" * (65 << 20) + b'"}', compresslevel=1)

    asked = recognise("POST", "/v1/messages", {"content-encoding": "gzip"}, bomb)

    assert (asked.generates, asked.model) == (True, "")


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, br", "gzip", "deflate", "nonsense"])
def test_an_encoding_that_cannot_be_undone_leaves_the_path_to_tell(encoding: str) -> None:
    asked = recognise("POST", "/v1/messages", {"content-encoding": encoding}, b"\x28\xb5\x2f\xfd\x00")

    assert (asked.apis[0], asked.generates, asked.model) == (Api.ANTHROPIC, True, "")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"x":' * 100_000, id="nested and cut off"),
        pytest.param(b'{"metadata":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="nested lists"),
        pytest.param(b'{"messages":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", id="nested objects"),
        pytest.param(b'{"max_tokens":' + b"9" * 100_000 + b"}", id="a number of many digits"),
        pytest.param(b'{"max_tokens":1e999999999}', id="a number of many zeros"),
        pytest.param(b'{"model":"\\ud800","user":"\\udfff\\ud800"}', id="half a character"),
        pytest.param(b'{"model":"\xff\xfe","metadata":{"\xff":"\xff"}}', id="not UTF-8"),
        pytest.param(b'{"\xff":1,"model":"m"}', id="a key that is not UTF-8"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
        pytest.param("{}".encode("utf-16"), id="UTF-16"),
        pytest.param(b'"' * 100_000, id="quotes"),
        pytest.param((b'"' + b"A" * 2_000) * 500, id="base64 without an end"),
        pytest.param(b"NaN", id="not a number"),
        pytest.param(b"\0" * 1_000, id="zeros"),
    ],
)
def test_a_monstrous_body_still_makes_a_call(body: bytes) -> None:
    for path in PATHS:
        asked = recognise("POST", path, {}, body)

        assert asked.generates or path in ("/v1/new", "/")
        assert 0 <= asked.tokens_max_out < 2**53


encodings = st.sampled_from(["", "gzip", "x-gzip", "deflate", "br", "zstd", "identity", "gzip, gzip", "\x00"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(10**60), 10**60) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
objects = st.dictionaries(
    st.sampled_from((*FIELDS, "x")),
    json_values
    | st.fixed_dictionaries({"user_id": json_values, "maxOutputTokens": json_values, "num_predict": json_values}),
    max_size=8,
)


def assert_total(asked: Recognised) -> None:
    assert isinstance(asked.model, str)
    assert isinstance(asked.user, str)
    assert isinstance(asked.stream, bool)
    assert isinstance(asked.tokens_max_out, int)
    assert not isinstance(asked.tokens_max_out, bool)
    assert 0 <= asked.tokens_max_out < 2**53
    assert asked.tokens_in >= 0
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in asked.metadata.items())


@given(st.sampled_from(["POST", "GET", "put", ""]), st.text(max_size=30), st.binary(max_size=300), encodings)
def test_any_bytes_on_any_path_have_an_answer(method: str, path: str, body: bytes, encoding: str) -> None:
    for place in (path, *PATHS):
        assert_total(recognise(method, place, {"content-encoding": encoding}, body))


@pytest.mark.slow
@given(st.sampled_from(PATHS), objects | json_values, st.booleans())
def test_any_json_has_an_answer(path: str, body: object, zipped: bool) -> None:
    text = json.dumps(body).encode()
    if zipped:
        asked = recognise("POST", path, {"content-encoding": "gzip"}, gzip.compress(text, compresslevel=1))
    else:
        asked = recognise("POST", path, {}, text)

    assert_total(asked)


@pytest.mark.slow
@given(objects, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_a_model_is_found_among_any_other_fields(others: dict[str, Any], model: str) -> None:
    # NaN and infinities are Python's own additions to JSON; msgspec, like the providers, refuses the whole body.
    others = json.loads(json.dumps(others), parse_constant=lambda _: 0.0)

    asked = ask(others | {"model": model, "messages": []})

    assert asked.model == model


@pytest.fixture(name="_in_steps")
def in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every body were a long one."""
    monkeypatch.setattr("hivemind_trio.wire.body.body_fields.WHOLE_BYTES_MAX", 0)
    for module in ("request.request_facts", "body.json_members", "body.content_codings"):
        monkeypatch.setattr(f"hivemind_trio.wire.{module}.STEP_BYTES", 2_048)


@pytest.mark.slow
@pytest.mark.usefixtures("_in_steps")
@given(objects)
def test_a_long_body_is_understood_as_a_short_one_is(body: Any) -> None:
    text = json.dumps(body).replace("Infinity", "1").replace("NaN", "1").encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hivemind_trio.wire.body.body_fields.WHOLE_BYTES_MAX", 1 << 20)
        whole = recognise("POST", "/v1/new", {}, text)

    assert recognise("POST", "/v1/new", {}, text) == whole


@pytest.mark.usefixtures("_in_steps")
@pytest.mark.parametrize("before", [0, 1, 700, 1_500, 2_030, 2_047, 2_048, 5_000])
@pytest.mark.parametrize("blob", [1_023, 1_024, 2_000, 2_048, 20_000])
def test_a_picture_is_one_wherever_a_step_ends(before: int, blob: int) -> None:
    part = {"type": "image", "data": "A" * blob}
    text = json.dumps(
        {"x": " " * before, "messages": [part, "data:x", part | {"data": "data:a/b;base64," + "B" * blob}]}
    )

    asked = recognise("POST", "/v1/messages", {}, text.encode())

    letters = len(text) - (2 * blob if blob >= 1_024 else 0)
    assert asked.tokens_in == letters // 4 + 2 * 1_500


@pytest.mark.parametrize("name", ["metadata", "generationConfig", "options", "model", "user", "max_tokens", "stream"])
def test_what_is_not_read_takes_no_memory(name: str) -> None:
    """2.2 million words in 32 MB took 360 MB."""
    words = b"{" + b",".join(b'"k%d":"v"' % number for number in range(200_000)) + b"}"
    body = b'{"messages":[],"' + name.encode() + b'":' + words + b',"prompt_cache_key":"k"}'
    tracemalloc.start()
    try:
        asked = recognise("POST", "/v1/messages", {}, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert asked.user == "k"
    assert asked.metadata == {}
    assert peak < 2 << 20 < len(body)


def test_metadata_of_a_usual_length_is_read() -> None:
    words = {f"word{number}": "x" * 512 for number in range(16)}

    assert ask(ANTHROPIC | {"metadata": words}).metadata == words


@pytest.mark.parametrize("encoding", ["", "gzip", "br", "zstd"])
def test_a_long_body_is_read_in_steps(encoding: str) -> None:
    text = b'{"model":"m","messages":["' + b"word " * 1_000_000 + b'"]}'
    encoders: dict[str, Callable[[], bytes]] = {
        "": lambda: text,
        "gzip": lambda: gzip.compress(text, 1),
        "br": lambda: brotli.compress(text, quality=1),
        "zstd": lambda: zstandard.ZstdCompressor().compress(text),
    }
    packed = encoders[encoding]()
    steps = recognising("POST", "/v1/messages", {"content-encoding": encoding}, packed)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            asked = end.value
            break
        count += 1

    assert asked.model == "m"
    assert asked.tokens_in == len(text) // 4
    assert count >= 2 * len(text) // STEP_BYTES - 4
