"""The SDKs' stream helpers before a provider that fails: before any content nobody notices; later all is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anthropic
import attrs
import httpx2
import openai
import pytest
import trio

from hivemind_trio.demo import ScriptedReply
from hivemind_trio.demo.wire_dialects import ANSWER_FORMATS, Said

from .house import PATIENCE_S, Place, in_thread, messages, standing, until

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

EVENTS: Final = b"text/event-stream; charset=utf-8"
SAID: Final = Said(number=1, model="m", tokens_in=9, events=[1, 2])

RETRYING: Final = """
hmp 1
provider sim { api generic; base env(UPSTREAM); concurrency 3; timeout first-byte 1s; retry quick }
retry quick { attempts 3; backoff 1ms..1ms }
"""
IMPATIENT: Final = """
hmp 1
server { wait silent 10ms hold 60s }
provider sim { api generic; base env(UPSTREAM); concurrency 1; retry once }
retry once { attempts 1 }
"""


def message(place: Place) -> str:
    with (
        anthropic.Anthropic(base_url=place.url, api_key="k", max_retries=0) as client,
        client.messages.stream(model="claude-x", max_tokens=99, messages=messages()) as stream,
    ):
        text = "".join(stream.text_stream)
        assert stream.get_final_message().stop_reason == "end_turn"
    return text


def chat(place: Place) -> str:
    with (
        openai.OpenAI(base_url=place.v1, api_key="k", max_retries=0) as client,
        client.chat.completions.stream(model="m", messages=messages()) as stream,
    ):
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        assert stream.get_final_completion().choices[0].finish_reason == "stop"
    return text


def response(place: Place) -> str:
    with (
        openai.OpenAI(base_url=place.v1, api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input="hi") as stream,
    ):
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text
    return text


@attrs.frozen
class Sdk:
    ask: Callable[[Place], str]
    path: str
    error: dict[str, Any]
    """An event of an overloaded provider."""

    @property
    def opening(self) -> bytes:
        return ANSWER_FORMATS[self.path].streamed(SAID).opening

    @property
    def event(self) -> bytes:
        name = self.error.get("type")
        return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(self.error).encode() + b"\n\n"


OVERLOADED: Final = {"type": "overloaded_error", "message": "Overloaded"}
SDKS: Final = {
    "anthropic": Sdk(message, "/v1/messages", {"type": "error", "error": OVERLOADED}),
    "chat": Sdk(chat, "/v1/chat/completions", {"error": {"message": "no", "type": "server_error", "code": None}}),
    "responses": Sdk(
        response,
        "/v1/responses",
        {"type": "error", "code": "server_error", "message": "no", "param": None, "sequence_number": 2},
    ),
}

FAILURES: Final[dict[str, Callable[[Sdk], ScriptedReply]]] = {
    "an error at once": lambda sdk: ScriptedReply(status=200, body=sdk.event, content_type=EVENTS),
    "an error behind the preamble": lambda sdk: ScriptedReply(
        status=200, body=sdk.opening + sdk.event, content_type=EVENTS
    ),
    "a reset behind the preamble": lambda _: ScriptedReply(die_after=0, reset=True),
    "an early end": lambda _: ScriptedReply(die_after=0),
    "a stall": lambda _: ScriptedReply(hold_after=(0, trio.Event())),
    "an end without content": lambda sdk: ScriptedReply(status=200, body=sdk.opening, content_type=EVENTS),
    "an end without a byte": lambda _: ScriptedReply(status=200, body=b"", content_type=EVENTS),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", SDKS)
async def test_an_sdk_sees_nothing_of_what_fails_before_any_content(name: str, failure: str) -> None:
    sdk = SDKS[name]
    async with standing(RETRYING) as place:
        place.provider.replies.append(FAILURES[failure](sdk))

        text = await in_thread(lambda: sdk.ask(place))

    assert text
    assert [(one.status, one.attempts, one.upstream_error) for one in place.records] == [(200, 2, None)]


# ---- after a 200 of ours ----


@asynccontextmanager
async def kept_alive(reply: ScriptedReply, ask: Callable[[Place], str]) -> AsyncIterator[tuple[Place, list[Exception]]]:
    """A call that waited until it had a 200 of ours, and was then answered with `reply`."""
    raised: list[Exception] = []

    async def late(place: Place) -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what the tests are about
            await in_thread(lambda: ask(place))
        raised.append(caught.value)

    async with standing(IMPATIENT) as place:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, lambda: message(place))
            await until(lambda: place.inflight == 1)
            place.provider.replies.append(reply)
            nursery.start_soon(late, place)
            await until(lambda: place.waiting == 1)
            await trio.sleep(0.05)  # the head of the answer is on its way, with the first keep-alive behind it
            gate.set()
        yield place, raised


def refusing(status: int, kind: str, code: str | None = None, message: str = "no") -> ScriptedReply:
    error = {"type": kind, "message": message} | ({"code": code, "param": None} if code is not None else {})
    body = {"error": error} if code is not None else {"type": "error", "error": error, "request_id": "req_1"}
    return ScriptedReply(status=status, body=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
async def test_anthropic_s_sdk_is_told_the_provider_s_own_error(status: int, kind: str) -> None:
    async with kept_alive(refusing(status, kind), message) as (place, raised):
        (error,) = raised

    assert isinstance(error, anthropic.APIStatusError)
    assert error.type == kind
    assert error.body == {"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_1"}
    assert [str(one.reason) for one in place.records] == ["none", "upstream-refused"]


@pytest.mark.parametrize("ask", [chat, response])
@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", "context_length_exceeded"),
        (429, "tokens", "rate_limit_exceeded"),
        (429, "insufficient_quota", "insufficient_quota"),
        (503, "server_error", "server_is_overloaded"),
    ],
)
async def test_openai_s_sdk_is_told_the_provider_s_own_error(
    ask: Callable[[Place], str], status: int, kind: str, code: str
) -> None:
    async with kept_alive(refusing(status, kind, code), ask) as (_, raised):
        (error,) = raised

    assert isinstance(error, openai.APIError)
    assert (error.type, error.code, error.message) == (kind, code, "no")


@pytest.mark.parametrize("ask", [message, chat, response])
async def test_an_error_before_any_content_is_told_by_its_own_name_after_a_200_of_ours(
    ask: Callable[[Place], str],
) -> None:
    sdk = next(one for one in SDKS.values() if one.ask is ask)
    reply = ScriptedReply(status=200, body=sdk.opening + sdk.event, content_type=EVENTS)

    async with kept_alive(reply, ask) as (_, raised):
        (error,) = raised

    assert isinstance(error, (anthropic.APIStatusError, openai.APIError))
    assert "Overloaded" in str(error) if ask is message else error.type == "server_error"


async def test_a_response_that_fails_after_a_200_of_ours_has_its_lifecycle() -> None:
    kinds: list[str] = []

    def ask(place: Place) -> str:
        with (
            openai.OpenAI(base_url=place.v1, api_key="k", max_retries=0) as client,
            client.responses.stream(model="m", input="hi") as stream,
        ):
            for event in stream:
                kinds.append(event.type)
        return ""

    async with kept_alive(refusing(429, "tokens", "rate_limit_exceeded"), ask):
        assert kinds == ["response.created", "response.failed"]


async def test_an_sdk_is_served_though_an_attempt_failed_after_a_200_of_ours() -> None:
    said: list[str] = []
    async with standing(IMPATIENT.replace("attempts 1", "attempts 3; backoff 1ms..1ms")) as place:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))

        async def late() -> None:
            said.append(await in_thread(lambda: message(place)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, lambda: message(place))
            await until(lambda: place.inflight == 1)
            place.provider.replies.append(ScriptedReply(die_after=0, reset=True))
            place.provider.replies.append(FAILURES["an error behind the preamble"](SDKS["anthropic"]))
            nursery.start_soon(late)
            await until(lambda: place.waiting == 1)
            await trio.sleep(0.05)  # the head of the answer is on its way, with the first keep-alive behind it
            gate.set()
            with trio.fail_after(PATIENCE_S):
                await until(lambda: bool(said))

    assert all(said)
    assert [one.attempts for one in place.records] == [1, 3]


# ---- a proxy that stops ----


@pytest.mark.parametrize(("name", "kind"), [("anthropic", anthropic.APIStatusError), ("chat", openai.APIError),
                                            ("responses", openai.APIError)])  # fmt: skip
async def test_an_sdk_is_told_that_the_proxy_has_stopped_in_the_middle_of_its_stream(
    name: str, kind: type[Exception]
) -> None:
    raised: list[Exception] = []
    async with standing(RETRYING) as place:
        place.provider.replies.append(ScriptedReply(hold_after=(1, trio.Event())))

        async def ask() -> None:
            with pytest.raises(kind, match="the proxy has shut down") as caught:
                await in_thread(lambda: SDKS[name].ask(place))
            raised.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await until(lambda: any(one.bytes_out for one in place.house.door.exchanges.values()))
            with trio.move_on_after(0):
                await place.house.drain()
            await place.house.cut_off()

    assert not isinstance(raised[0], openai.APIConnectionError)
    assert [str(one.reason) for one in place.records] == ["draining"]


async def test_over_http_2_the_error_comes_before_the_reset() -> None:
    came = b""
    async with standing(RETRYING) as place, trio.open_nursery() as nursery:
        place.provider.replies.append(ScriptedReply(hold_after=(1, trio.Event())))

        async def stop() -> None:
            await until(lambda: any(one.bytes_out for one in place.house.door.exchanges.values()))
            with trio.move_on_after(0):
                await place.house.drain()
            await place.house.cut_off()

        nursery.start_soon(stop)
        body = {"model": "claude-x", "max_tokens": 99, "messages": messages(), "stream": True}
        async with (
            httpx2.AsyncClient(http1=False, http2=True, trust_env=False, timeout=PATIENCE_S) as client,
            client.stream("POST", f"{place.url}/v1/messages", json=body) as answer,
        ):
            pieces = answer.aiter_raw()
            with suppress(httpx2.RemoteProtocolError):
                while True:
                    came += await anext(pieces)

    assert came.rpartition(b"event: error\n")[2].startswith(b'data: {"type":"error"')
    assert b"the proxy has shut down" in came
