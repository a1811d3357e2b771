"""A WebSocket handshake of a real client is refused so that the client goes on over HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import RejectConnection, RejectData, Request

from tests.e2e.house import Place, messages, standing

POLICY = "provider sim { api openai; base env(UPSTREAM) }"

TARGETS = {
    "responses": "/v1/responses",
    "an agent's": "/@ci/v1/responses",
    "realtime": "/v1/realtime?model=gpt-realtime",
    "no path of anybody's": "/socket",
}
"""Codex's transport, with and without a name; the browser's; anything."""


async def handshake(place: Place, target: str) -> tuple[int, dict[bytes, bytes], bytes]:
    """As a WebSocket client sees it: status, headers and body of a refusal."""
    address = urlsplit(place.url)
    client = WSConnection(ConnectionType.CLIENT)
    asks = Request(
        host=address.netloc,
        target=target,
        extra_headers=[(b"Authorization", b"Bearer k"), (b"OpenAI-Beta", b"responses_websockets=2026-02-06")],
    )
    async with await trio.open_tcp_stream(str(address.hostname), address.port or 0) as stream:
        await stream.send_all(client.send(asks))
        status, headers, body = 0, {}, b""
        while True:
            data = await stream.receive_some()
            client.receive_data(data or None)
            for event in client.events():
                match event:
                    case RejectConnection():
                        status = event.status_code
                        headers = {name.lower(): value for name, value in event.headers}
                    case RejectData():
                        body += bytes(event.data)
                        if event.body_finished:
                            return status, headers, body
            assert data, "the connection ended before the answer did"


def error_of(body: bytes) -> dict[str, Any]:
    error = json.loads(body)["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
async def test_a_handshake_is_refused_in_the_api_s_words(target: str) -> None:
    async with standing(POLICY) as place:
        status, headers, body = await handshake(place, target)

    assert status == 426
    assert headers[b"upgrade"] == b"HTTP/1.1"  # RFC 9110, section 15.5.22
    assert headers[b"x-hivemind-reason"] == b"upgrade-rejected"
    assert headers[b"content-type"] == b"application/json"
    assert int(headers[b"content-length"]) == len(body)
    assert "use HTTP" in error_of(body)["message"]
    assert error_of(body)["code"] == "upgrade-rejected"
    assert not place.provider.seen


async def test_after_a_refusal_the_client_is_served_over_http() -> None:
    async with standing(POLICY) as place:
        await handshake(place, "/v1/responses")
        async with openai.AsyncOpenAI(base_url=place.v1, api_key="k", max_retries=0) as client:
            answer = await client.chat.completions.create(model="gpt-x", messages=messages())

    assert answer.choices[0].message.content
