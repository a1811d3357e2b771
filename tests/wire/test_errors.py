"""What is said in each dialect when we refuse, or when an answer breaks off; and where each carries its credential."""

from __future__ import annotations

import gzip
import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.dialects import CREDENTIAL_HEADERS, credential_header
from hivemind_trio.model import Api
from hivemind_trio.wire import (
    at_boundary,
    error_event,
    own_error,
    provider_error,
    refusal_body,
)

STATUSES = (400, 401, 403, 404, 413, 426, 429, 502, 503, 504)
OPENAI_LIKE = (Api.OPENAI, Api.AZURE, Api.VLLM, Api.GENERIC, None)
EVENTS = "text/event-stream; charset=utf-8"
NDJSON = "application/x-ndjson"


def refused(api: Api | None, status: int) -> Any:
    return json.loads(refusal_body(api, status, "too many", "queue-full"))


def broke(api: Api | None, path: str, content_type: str) -> bytes:
    return error_event(api, path, content_type, own_error(api, 502, "broke off", "upstream-broke"))


def sdk_client(status: int, body: bytes, content_type: str) -> httpx2.Client:
    """The SDKs' own client, over an answer that is already here."""
    answer = httpx2.Response(status, headers={"content-type": content_type}, content=body)
    return httpx2.Client(transport=httpx2.MockTransport(lambda _: answer))


# ---- refusals ----


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (502, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
    ],
)
def test_anthropic_s_errors_have_the_types_of_its_reference(status: int, kind: str) -> None:
    assert refused(Api.ANTHROPIC, status) == {"type": "error", "error": {"type": kind, "message": "too many"}}


@pytest.mark.parametrize("status", STATUSES)
def test_we_never_say_overloaded(status: int) -> None:
    # Claude Code counts it towards falling back to another model.
    assert b"overloaded" not in refusal_body(Api.ANTHROPIC, status, "too many", "queue-full")


@pytest.mark.parametrize("api", OPENAI_LIKE)
def test_whoever_has_no_dialect_of_its_own_gets_openai_s(api: Api | None) -> None:
    assert refused(api, 429) == {
        "error": {"message": "too many", "type": "rate_limit_error", "param": None, "code": "queue-full"}
    }
    assert refused(api, 503)["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    ("status", "word"),
    [(403, "PERMISSION_DENIED"), (429, "RESOURCE_EXHAUSTED"), (503, "UNAVAILABLE"), (502, "INTERNAL")],
)
def test_gemini_s_errors_are_google_s_status(status: int, word: str) -> None:
    assert refused(Api.GEMINI, status) == {"error": {"code": status, "message": "too many", "status": word}}


def test_ollama_s_error_is_a_text() -> None:
    assert refused(Api.OLLAMA, 503) == {"error": "too many"}


@given(st.sampled_from([*Api, None]), st.sampled_from(STATUSES), st.text())
def test_any_message_comes_back_from_the_json(api: Api | None, status: int, message: str) -> None:
    body = json.loads(refusal_body(api, status, message, "denied"))

    error = body.get("error", body)
    assert (error if api is Api.OLLAMA else error["message"]) == message


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, anthropic.AuthenticationError),
        (403, anthropic.PermissionDeniedError),
        (404, anthropic.NotFoundError),
        (413, anthropic.APIStatusError),
        (429, anthropic.RateLimitError),
        (503, anthropic.InternalServerError),
    ],
)
def test_anthropic_s_sdk_reads_a_refusal(status: int, error: type[anthropic.APIStatusError]) -> None:
    http = sdk_client(status, refusal_body(Api.ANTHROPIC, status, "too many", "x"), "application/json")
    with anthropic.Anthropic(api_key="k", max_retries=0, http_client=http) as client, pytest.raises(error) as raised:
        client.messages.create(model="m", max_tokens=1, messages=[])

    assert raised.value.status_code == status
    assert "too many" in raised.value.message


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ],
)
def test_openai_s_sdk_reads_a_refusal(status: int, error: type[openai.APIStatusError]) -> None:
    http = sdk_client(status, refusal_body(Api.OPENAI, status, "too many", "queue-full"), "application/json")
    with openai.OpenAI(api_key="k", max_retries=0, http_client=http) as client, pytest.raises(error) as raised:
        client.chat.completions.create(model="m", messages=[])

    assert raised.value.code == "queue-full"
    assert "too many" in raised.value.message


# ---- an answer that broke off ----


def test_an_answer_that_is_no_stream_has_no_place_for_an_error() -> None:
    for kind in ("application/json", "text/html", "", "text/plain; charset=utf-8"):
        for api in (*Api, None):
            assert broke(api, "/v1/messages", kind) == b""


def test_anthropic_s_sdk_reads_the_error_event() -> None:
    stream = b'event: ping\ndata: {"type": "ping"}\n\n' + broke(Api.ANTHROPIC, "/v1/messages", EVENTS)
    http = sdk_client(200, stream, EVENTS)
    with anthropic.Anthropic(api_key="k", max_retries=0, http_client=http) as client:
        events = client.messages.create(model="m", max_tokens=1, messages=[], stream=True)
        with pytest.raises(anthropic.APIError, match="broke off"):
            list(events)


def test_openai_s_sdk_reads_the_error_in_a_chat() -> None:
    http = sdk_client(200, broke(Api.OPENAI, "/v1/chat/completions", EVENTS), EVENTS)
    with openai.OpenAI(api_key="k", max_retries=0, http_client=http) as client:
        events = client.chat.completions.create(model="m", messages=[], stream=True)
        with pytest.raises(openai.APIError, match="broke off"):
            list(events)


def test_openai_s_sdk_reads_the_error_in_a_response() -> None:
    http = sdk_client(200, broke(Api.OPENAI, "/v1/responses", EVENTS), EVENTS)
    with openai.OpenAI(api_key="k", max_retries=0, http_client=http) as client:
        events = client.responses.create(model="m", input="x", stream=True)
        with pytest.raises(openai.APIError, match="broke off") as raised:
            list(events)

    assert raised.value.code == "upstream-broke"


@pytest.mark.parametrize("tail", [b"", b"1}\n\n", b"}\r\n\r\n"])
def test_an_error_fits_behind_a_whole_event(tail: bytes) -> None:
    assert at_boundary(EVENTS, tail)
    assert not broke(Api.ANTHROPIC, "/v1/messages", EVENTS).startswith(b"\n")


@pytest.mark.parametrize("tail", [b'{"ha', b"1}\n", b"}\r\n", b"\n\r\n"])
def test_no_error_fits_behind_half_an_event(tail: bytes) -> None:
    assert not at_boundary(EVENTS, tail)


def test_an_error_of_ollama_is_a_line_behind_a_whole_one() -> None:
    assert json.loads(broke(Api.OLLAMA, "/api/chat", NDJSON)) == {"error": "broke off"}
    assert [at_boundary(NDJSON, tail) for tail in (b"", b"1}\n", b'{"ha')] == [True, True, False]


# ---- a provider's error, after a 200 of ours ----

ANTHROPIC_529 = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"}
OPENAI_429 = {"error": {"message": "slow", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}}
GOOGLE_429 = {"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": [{"a": 1}]}}
PATHS = {
    Api.ANTHROPIC: "/v1/messages",
    Api.OPENAI: "/v1/chat/completions",
    Api.GEMINI: "/v1beta/models/g:streamGenerateContent",
    Api.OLLAMA: "/api/chat",
}


def told(api: Api, status: int, body: object, encoding: str = "") -> Any:
    """A provider's error as it stands in the event that the agent gets."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = provider_error(api, status, raw, encoding, "upstream-refused")
    event = error_event(api, PATHS[api], NDJSON if api is Api.OLLAMA else EVENTS, error, begun=False)
    return json.loads(event.strip().split(b"\n")[-1].removeprefix(b"data: "))


@pytest.mark.parametrize(
    ("api", "status", "body"),
    [
        (Api.ANTHROPIC, 529, ANTHROPIC_529),
        (Api.OPENAI, 429, OPENAI_429),
        (Api.GEMINI, 429, GOOGLE_429),
        (Api.OLLAMA, 503, {"error": "server busy"}),
    ],
)
def test_a_provider_s_error_is_told_in_its_own_words(api: Api, status: int, body: dict[str, Any]) -> None:
    assert told(api, status, body) == body
    assert told(api, status, gzip.compress(json.dumps(body).encode()), "gzip") == body


def test_google_s_array_of_one_error_is_that_error() -> None:
    assert told(Api.GEMINI, 429, [GOOGLE_429]) == GOOGLE_429


@pytest.mark.parametrize(
    ("api", "body", "error"),
    [
        (Api.ANTHROPIC, {"error": {"message": "no"}}, {"type": "rate_limit_error", "message": "no"}),
        (Api.ANTHROPIC, {"error": "no"}, {"type": "rate_limit_error", "message": "no"}),
        (
            Api.OPENAI,
            {"object": "error", "message": "no", "type": "BadRequestError", "code": 400},
            {"message": "no", "type": "BadRequestError", "param": None, "code": 400},
        ),
        (
            Api.OPENAI,
            {"error": {"message": "no"}},
            {"message": "no", "type": "rate_limit_error", "param": None, "code": None},
        ),
        (Api.GEMINI, {"error": {"message": "no"}}, {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "no"}),
        (
            Api.GEMINI,  # of a gateway that answers as OpenAI does; the SDK dies of a code that is no number
            OPENAI_429,
            {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow", "type": "tokens"},
        ),
        (Api.OLLAMA, {"error": {"message": "no"}}, "no"),
    ],
)
def test_what_an_error_lacks_for_its_dialect_comes_of_its_status(api: Api, body: object, error: object) -> None:
    assert told(api, 429, body)["error"] == error


@pytest.mark.parametrize("body", [b"<html>busy</html>", b"", b'{"detail": "busy"}', b"[]", b"[" * 9_000])
@pytest.mark.parametrize("api", PATHS)
def test_what_is_no_error_of_any_dialect_is_shown_with_its_status(api: Api, body: bytes) -> None:
    error = told(api, 529, body)["error"]

    message = error if api is Api.OLLAMA else error["message"]
    assert message.startswith("the provider answered 529: " + body.decode()[:20])
    assert len(message) < 3_000
    if api is Api.ANTHROPIC:
        assert error["type"] == "overloaded_error"


@pytest.mark.slow
def test_a_response_that_never_began_is_created_and_fails() -> None:
    error = provider_error(Api.OPENAI, 429, json.dumps(OPENAI_429).encode(), "", "x")
    stream = error_event(Api.OPENAI, "/v1/responses", EVENTS, error, begun=False, model="m")
    http = sdk_client(200, b": ping\n" + stream, EVENTS)
    seen: list[Any] = []
    with (
        openai.OpenAI(api_key="k", max_retries=0, http_client=http) as client,
        client.responses.stream(model="m", input="x") as events,
        pytest.raises(openai.APIError, match="slow") as raised,
    ):
        seen.extend(events)

    assert [event.type for event in seen] == ["response.created", "response.failed"]
    assert [event.response.model for event in seen] == ["m", "m"]
    assert (seen[1].response.status, seen[1].response.error.code) == ("failed", "rate_limit_exceeded")
    assert (raised.value.code, raised.value.type, raised.value.body) == (
        "rate_limit_exceeded", "tokens", OPENAI_429["error"],
    )  # fmt: skip


def test_google_s_array_that_never_began_holds_the_error_alone() -> None:
    event = error_event(Api.GEMINI, PATHS[Api.GEMINI], "application/json", GOOGLE_429, begun=False)

    assert json.loads(b"\n\n" + event) == [GOOGLE_429]


# ---- credentials ----


@pytest.mark.parametrize("api", Api)
def test_a_key_goes_where_the_dialect_looks_for_it(api: Api) -> None:
    name, value = credential_header(api, "s3cret")

    assert name in CREDENTIAL_HEADERS
    assert value == (b"Bearer s3cret" if name == b"authorization" else b"s3cret")
    expected = {Api.ANTHROPIC: b"x-api-key", Api.AZURE: b"api-key", Api.GEMINI: b"x-goog-api-key"}
    assert name == expected.get(api, b"authorization")
