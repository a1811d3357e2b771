"""The head that we write ourselves says what was meant and nothing more, by h11's reading."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.upstream.outgoing import Base, Origin, OutgoingRequest

# Few bytes, most of them dangerous, so that the search finds their combinations; and mostly sound parts around them, so
# that one bad part is not hidden behind another.
NASTY = st.text("ab:, \t\r\n\v\f\0\x7f\xff/?", max_size=8).map(lambda text: text.encode("latin-1"))
METHODS = st.sampled_from([b"GET", b"POST", b"PUT", b"a", b"CONNECT", b"G T", b"GET / HTTP/1.1\r\nx:"])
TARGETS = st.one_of(st.just(b"/"), st.just(b"/a?b=%20"), NASTY.map(lambda tail: b"/" + tail))
NAMES = st.one_of(
    st.sampled_from([b"x-a", b"X-A", b"accept"]), st.sampled_from([b"Host", b"content-Length", b""]), NASTY
)
VALUES = st.one_of(
    st.sampled_from([b"1", b"chunked", b""]),
    st.sampled_from([b"a\r\nx-b: c", b"a\nx-b: c", b"a\r\ncontent-length: 0", b"\r\n\r\nGET / HTTP/1.1\r\nhost: b"]),
    NASTY,
)


@pytest.mark.slow
@settings(max_examples=400)
@given(
    method=METHODS,
    target=TARGETS,
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=3),
    body=st.sampled_from([b"", b"body"]),
)
def test_h11_reads_exactly_what_was_meant(
    method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    outgoing = OutgoingRequest(Base.parse("http://provider:8000"), method, target, headers, body)
    try:
        head = outgoing.head()
    except h11.LocalProtocolError:
        return

    server = h11.Connection(h11.SERVER)
    server.receive_data(head + body)

    request = server.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target) == (method, target)
    meant = [*outgoing.framing(), *headers]
    assert request.headers.raw_items() == [(name, value.strip(b" \t")) for name, value in meant]
    received = b""
    while isinstance(event := server.next_event(), h11.Data):
        received += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert received == body
    assert server.trailing_data == (b"", False)


@pytest.mark.parametrize(
    ("text", "origin", "authority", "prefix"),
    [
        ("http://localhost", Origin("localhost", 80, False), b"localhost", b""),
        ("https://api.example.com/", Origin("api.example.com", 443, True), b"api.example.com", b""),
        ("HTTPS://API.Example.com:443/v1/", Origin("api.example.com", 443, True), b"api.example.com", b"/v1"),
        ("http://[::1]:8080/a//b", Origin("::1", 8080, False), b"[::1]:8080", b"/a//b"),
        ("https://bücher.example/%7Ex", Origin("xn--bcher-kva.example", 443, True), b"xn--bcher-kva.example", b"/%7Ex"),
    ],
)
def test_a_base_is_taken_apart(text: str, origin: Origin, authority: bytes, prefix: bytes) -> None:
    base = Base.parse(text)

    assert (base.origin, base.authority, base.prefix) == (origin, authority, prefix)


@pytest.mark.parametrize(
    ("base", "target", "sent"),
    [  # for APIs whose SDKs have the version in their base URLs
        ("", b"/v1/messages?beta=true", b"/v1/messages?beta=true"),
        ("/v1", b"/v1/chat/completions", b"/v1/chat/completions"),
        ("/v1/", b"/v1?x", b"/v1?x"),
        ("/api/v1", b"/v1/chat/completions", b"/api/v1/chat/completions"),
        ("/api/v1", b"/chat/completions", b"/api/v1/chat/completions"),
        ("/openai/v1", b"/openai/v1/responses", b"/openai/v1/responses"),
        ("/openai/v1", b"/openai/deployments/d/completions", b"/openai/v1/openai/deployments/d/completions"),
        ("/v1beta", b"/v1beta/models/m:generateContent", b"/v1beta/models/m:generateContent"),
        ("/v1beta", b"/v1/models", b"/v1beta/models"),
        ("/v1", b"/v1beta/models", b"/v1/v1beta/models"),
        ("/v1beta/openai", b"/v1/chat/completions", b"/v1beta/openai/chat/completions"),
        ("/v1beta/openai/", b"/v1/files", b"/v1beta/openai/files"),
        ("/v1beta/openai", b"/v1", b"/v1beta/openai/v1"),
        ("/api/paas/v4", b"/v1/chat/completions", b"/api/paas/v4/chat/completions"),
        ("/api/paas/v4", b"/v1/models?limit=2", b"/api/paas/v4/models?limit=2"),
        ("/api/v2", b"/v10/models", b"/api/v2/v10/models"),
        ("/v1", b"/v10/chat", b"/v1/v10/chat"),
        ("/v1/acct/openai", b"/v1/chat/completions", b"/v1/acct/openai/chat/completions"),
        ("/apiv1", b"/v1/chat", b"/apiv1/v1/chat"),
        ("/llm", b"/v1/chat/completions", b"/llm/v1/chat/completions"),
    ],
)
def test_a_version_in_a_base_is_said_once(base: str, target: bytes, sent: bytes) -> None:
    assert Base.parse(f"https://api.example.com{base}").joined(target, version_in_base=True) == sent


@pytest.mark.parametrize(
    ("base", "target", "sent"),
    [
        ("/v1", b"/v1/messages", b"/v1/messages"),
        ("/v1beta", b"/v1beta/models/m:generateContent", b"/v1beta/models/m:generateContent"),
        ("/v1beta", b"/v1/models", b"/v1beta/v1/models"),
        ("/api/v2", b"/v1/messages", b"/api/v2/v1/messages"),
        ("/v1/acct/anthropic", b"/v1/messages", b"/v1/acct/anthropic/v1/messages"),
    ],
)
def test_other_paths_lose_only_a_version_that_ends_the_base(base: str, target: bytes, sent: bytes) -> None:
    assert Base.parse(f"https://api.example.com{base}").joined(target) == sent
