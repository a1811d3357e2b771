"""Which request is which API, and which of them takes a slot."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.dialects import SHARED_PATHS
from hivemind_trio.model import Api
from hivemind_trio.wire import base_url_hint, endpoint, is_admin, is_root, recognise

BODY = json.dumps({"model": "m", "messages": [], "input": "x"}).encode()

GENERATIONS = {
    "/v1/messages": Api.ANTHROPIC,
    "/v1/complete": Api.ANTHROPIC,
    "/v1/chat/completions": Api.OPENAI,
    "/v1/completions": Api.OPENAI,
    "/v1/responses": Api.OPENAI,
    "/v1/responses/compact": Api.OPENAI,
    "/v1/embeddings": Api.OPENAI,
    "/v1/images/generations": Api.OPENAI,
    "/v1/audio/transcriptions": Api.OPENAI,
    "/backend-api/codex/responses": Api.OPENAI,
    "/openai/deployments/d/chat/completions": Api.AZURE,
    "/openai/deployments/d/embeddings": Api.AZURE,
    "/openai/deployments/d/images/generations": Api.AZURE,
    "/openai/v1/responses": Api.AZURE,
    "/v1beta/models/gemini-x:generateContent": Api.GEMINI,
    "//v1beta/models/gemini-x:generateContent": Api.GEMINI,
    "/models/gemini-x:generateContent": Api.GEMINI,
    "/models/gemini-x:streamGenerateContent": Api.GEMINI,
    "/v1beta/models/gemini-x:streamGenerateContent": Api.GEMINI,
    "/v1/models/gemini-x:generateContent": Api.GEMINI,
    "/v1alpha/models/gemini-x:embedContent": Api.GEMINI,
    "/v1beta/tunedModels/mine:generateContent": Api.GEMINI,
    "/v1/projects/p/locations/l/publishers/google/models/gemini-x:streamGenerateContent": Api.GEMINI,
    "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x:streamRawPredict": Api.GEMINI,
    "/api/chat": Api.OLLAMA,
    "/api/generate": Api.OLLAMA,
    "/api/embed": Api.OLLAMA,
}

CHEAP = {
    "/v1/messages/count_tokens": Api.ANTHROPIC,
    "/v1/messages/batches": Api.ANTHROPIC,
    "/v1/skills": Api.ANTHROPIC,
    "/v1/responses/resp_1/cancel": Api.OPENAI,
    "/v1/moderations": Api.OPENAI,
    "/v1/batches": Api.OPENAI,
    "/v1/threads/t/runs": Api.OPENAI,
    "/v1/conversations": Api.OPENAI,
    "/openai/files": Api.AZURE,
    "/v1beta/models/gemini-x:countTokens": Api.GEMINI,
    "/v1beta/cachedContents": Api.GEMINI,
    "/api/show": Api.OLLAMA,
    "/api/pull": Api.OLLAMA,
}


@pytest.mark.parametrize(("path", "api"), GENERATIONS.items())
def test_a_generation_takes_a_slot_when_posted(path: str, api: Api) -> None:
    asked = recognise("POST", path, {}, BODY)

    assert asked.apis[0] is api
    assert asked.generates


@pytest.mark.parametrize("path", GENERATIONS)
@pytest.mark.parametrize("body", [b"", b"not JSON", b"[]", b"\x1f\x8b\x00"])
def test_a_generation_takes_a_slot_whatever_its_body(path: str, body: bytes) -> None:
    assert recognise("POST", path, {}, body).generates


@pytest.mark.parametrize("path", GENERATIONS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE"])
def test_only_a_post_makes_a_provider_generate(path: str, method: str) -> None:
    assert not recognise(method, path, {}, b"").generates


@pytest.mark.parametrize(("path", "api"), CHEAP.items())
def test_what_does_not_generate_takes_no_slot(path: str, api: Api) -> None:
    asked = recognise("POST", path, {}, BODY)

    assert asked.apis[0] is api
    assert not asked.generates


@pytest.mark.parametrize("path", ["/v1/messages/", "/v1/chat/completions/", "/v1/responses/", "/api/chat/"])
def test_a_slash_at_the_end_does_not_make_a_generation_cheap(path: str) -> None:
    assert recognise("POST", path, {}, BODY).generates


@pytest.mark.parametrize(
    "path",
    [
        "//v1/messages",
        "///v1beta/models/g:generateContent",
        "//models/g:streamGenerateContent",
        "/v1//messages",
        "/v1/./messages",
        "/v1/models/../messages",
        "/v1/mess%61ges",
        "/v1/x/%2e%2e/messages/",
    ],
)
def test_no_spelling_makes_a_generation_look_like_something_cheap(path: str) -> None:
    assert recognise("POST", path, {}, b"unreadable").generates


@pytest.mark.parametrize(
    ("body", "generates"),
    [
        ({"model": "m", "messages": []}, True),
        ({"model": "m", "input": "x"}, True),
        ({"model": "m", "prompt": "x"}, True),
        ({"model": "m", "contents": []}, True),
        ({"model": "m"}, False),
        ({"messages": []}, False),
        ({}, False),
        ([], False),
    ],
)
def test_on_a_path_that_nobody_knows_the_body_decides(body: object, generates: bool) -> None:
    for path in ("/v1/new-thing", "/something/else"):
        assert recognise("POST", path, {}, json.dumps(body).encode()).generates is generates


@pytest.mark.parametrize("path", ["", "/", "/v1/models", "/v1/files"])
def test_probes_and_lists_take_no_slot_whatever_they_hold(path: str) -> None:
    for method in ("GET", "HEAD", "POST"):
        assert not recognise(method, path, {}, BODY).generates


@pytest.mark.parametrize(
    ("headers", "api"),
    [
        ({"anthropic-version": "2023-06-01"}, Api.ANTHROPIC),
        ({"anthropic-beta": "x"}, Api.ANTHROPIC),
        ({"x-claude-code-session-id": "x", "authorization": "Bearer x"}, Api.ANTHROPIC),
        ({"x-api-key": "k"}, Api.ANTHROPIC),
        ({"x-goog-api-key": "k"}, Api.GEMINI),
        ({"x-goog-api-client": "genai"}, Api.GEMINI),
        ({"api-key": "k"}, Api.AZURE),
        ({"authorization": "Bearer k"}, Api.OPENAI),
        ({}, Api.OPENAI),
    ],
)
def test_a_path_that_several_share_goes_by_the_headers_of_their_clients(headers: dict[str, str], api: Api) -> None:
    for path in ("/v1/models", "/v1/files", "/v1/models/one"):
        assert endpoint(path, headers).apis[0] is api


def test_a_list_of_models_without_a_word_of_its_client_may_be_anybody_s_but_gemini_s() -> None:
    assert set(endpoint("/v1/models", {}).apis) == set(Api) - {Api.GEMINI, Api.AZURE}


def test_vllm_and_ollama_serve_anthropic_s_and_openai_s_paths_too() -> None:
    for path in ("/v1/messages", "/v1/chat/completions"):
        assert {Api.VLLM, Api.OLLAMA, Api.GENERIC} < set(endpoint(path, {}).apis)


def test_an_unknown_path_outside_v1_belongs_to_nobody() -> None:
    assert endpoint("/metrics", {}).apis == ()
    assert endpoint("/v1/messagesque/../x", {"x-goog-api-key": "k"}).apis == (Api.GEMINI,)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/openai/deployments/gpt-x/chat/completions", "gpt-x"),
        ("/v1beta/models/gemini-x:generateContent", "gemini-x"),
        ("/v1beta/tunedModels/mine:generateContent", "mine"),
        ("/v1/projects/p/locations/l/publishers/google/models/gemini-x:generateContent", "gemini-x"),
    ],
)
def test_a_model_in_the_path_counts_more_than_one_in_the_body(path: str, model: str) -> None:
    assert recognise("POST", path, {}, b'{"model": "another"}').model == model
    assert recognise("GET", path, {}, b"").model == model
    assert recognise("POST", path, {}, b"not JSON").model == model


@pytest.mark.parametrize(
    ("path", "body", "stream"),
    [
        ("/v1/messages", {"stream": True}, True),
        ("/v1/messages", {"stream": False}, False),
        ("/v1/messages", {}, False),
        ("/v1/messages", {"stream": "true"}, False),
        ("/v1/messages", {"stream": None}, False),
        ("/v1beta/models/g:streamGenerateContent", {}, True),
        ("/v1beta/models/g:generateContent", {}, False),
        ("/api/chat", {}, True),
        ("/api/chat", {"stream": False}, False),
        ("/api/generate", {}, True),
    ],
)
def test_what_streams(path: str, body: object, stream: bool) -> None:
    assert recognise("POST", path, {}, json.dumps(body).encode()).stream is stream


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/v1/messages", "take `/v1` off"),
        ("/v1/v1", "take `/v1` off"),
        ("/v1//v1/chat/completions", "take `/v1` off"),
        ("/v1beta/v1beta/models/g:generateContent", "the client adds `/v1beta` to its base URL: take `/v1beta` off"),
        ("/v1/v1beta/models/g:generateContent", "the client adds `/v1beta` to its base URL: take `/v1` off"),
        ("/chat/completions", "end its base URL with `/v1`"),
        ("/responses/", "end its base URL with `/v1`"),
        ("//messages", "end its base URL with `/v1`"),
        *((path, "") for path in (*GENERATIONS, *CHEAP, "/", "/v1", "/models", "/api/chat", "/x/messages")),
    ],
)
def test_a_path_may_show_what_is_wrong_with_a_base_url(path: str, words: str) -> None:
    hint = base_url_hint(path, ["https://api.example.com"])

    assert words in hint
    assert bool(hint) is bool(words)


@pytest.mark.parametrize("path", ["/v1/v1/messages", "/v1//v1", "/v1/v1/v1/messages", "/v1beta/v1beta/models/g:go"])
def test_the_same_version_twice_is_wrong_behind_any_provider(path: str) -> None:
    hint = base_url_hint(path, ["https://api.example.com"])

    assert hint
    assert hint == base_url_hint(path, ["https://api.example.com", "https://other.example.com/api/v1"])


@pytest.mark.parametrize("path", ["/chat/completions", "//messages", "/v1/v1beta/models/g:generateContent", "/v1/v10"])
def test_behind_a_provider_with_a_version_paths_with_another_or_none_may_be_right(path: str) -> None:
    assert not base_url_hint(path, ["https://api.example.com", "https://other.example.com/api/v1"])


@pytest.mark.parametrize(
    ("path", "admin"),
    [
        ("/v1/organizations/users", True),
        ("/v1/organization/admin_api_keys", True),
        ("/v1/organizations", True),
        ("/V1/Organizations/x", True),
        ("//v1/organi%7aations/x", True),
        ("/v1/models/../organizations/x", True),
        ("/organization/costs", True),
        ("/v1/v1/organizations", True),
        ("/anthropic/v1/organizations/users", True),
        ("/v1/%256frganizations", True),
        ("/v1;a=b/organizations;c", True),
        ("/v1\\organizations", True),
        ("/v1/organizations#x", True),
        ("/v1/organizations.json", True),
        ("/v1/organizations%0a/x", True),
        ("/v1/messages", False),
        ("/v1/organizational/x", False),
        ("/v1/organization_x", False),
        ("/v1/files/organization/content", False),
        ("/openai/deployments/organization/chat/completions", False),
    ],
)
def test_paths_that_administer_an_account_are_known_however_they_are_written(path: str, admin: bool) -> None:
    assert is_admin(path) is admin


@pytest.mark.parametrize(("path", "root"), [("/", True), ("", True), ("//", True), ("/%2e", True), ("/v1", False)])
def test_the_root_is_known_however_it_is_written(path: str, root: bool) -> None:
    assert is_root(path) is root


PIECES = st.sampled_from(
    ["v1", "messages", "models", "files", "api", "openai", "v1beta", "chat", "completions", "", "x", ":go"]
)
SAYING = st.sampled_from(["anthropic-version", "x-goog-api-client", "x-goog-api-key", "api-key", "x-api-key", "x"])


@given(pieces=st.lists(PIECES, max_size=4), headers=st.dictionaries(SAYING, st.just("1"), max_size=2))
def test_several_dialects_are_those_of_a_shared_path(pieces: list[str], headers: dict[str, str]) -> None:
    # What is proven of all calls counts on it.
    apis = endpoint("/" + "/".join(pieces), headers).apis

    assert len(apis) <= 1 or apis in SHARED_PATHS
