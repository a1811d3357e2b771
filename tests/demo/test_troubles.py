"""The simulated provider's quotas and faults as they look on the wire, and the usage that every answer ends with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import h11
import httpx2
import pytest
import trio

from hivemind_trio.demo import INSTANT, SimulatedProvider
from hivemind_trio.demo.rate_limit_headers import anthropic, go_duration, openai, retry_after
from hivemind_trio.model import Outcome
from hivemind_trio.sim import Metered, Quota, Reading, Traits, Trouble
from hivemind_trio.wire import read_signal

SECOND = 1_000_000_000
STEADY = attrs.evolve(INSTANT, tokens_out_sigma=0)
"""150 tokens out, every time."""

PATHS = ["/v1/messages", "/v1/chat/completions", "/v1/responses"]


@asynccontextmanager
async def provider(traits: Traits) -> AsyncIterator[SimulatedProvider]:
    with trio.fail_after(30):  # what hangs fails
        async with trio.open_nursery() as nursery:
            one = SimulatedProvider(traits, seed=7)
            await nursery.start(one.run)
            yield one
            nursery.cancel_scope.cancel()


async def post(url: str, path: str = "/v1/messages", *, text: str = "hi", stream: bool = False) -> httpx2.Response:
    asked: dict[str, Any] = {"model": "m", "max_tokens": 999, "stream": stream}
    asked |= {"input": text} if path.endswith("responses") else {"messages": [{"role": "user", "content": text}]}
    if path.endswith("completions"):
        asked["stream_options"] = {"include_usage": True}
    async with httpx2.AsyncClient() as client:
        return await client.post(url + path, json=asked)


def usage(body: str) -> tuple[int, int]:
    """The last that an answer says of its tokens, in and out, in whichever dialect, streamed or not."""
    lines = [line.removeprefix("data:") for line in body.splitlines() if line.startswith("data:")] or [body]
    counted: dict[str, int] = {}
    for line in lines:
        said = {} if line.strip() == "[DONE]" else json.loads(line)
        for holder in (said, said.get("message"), said.get("response")):
            counted.update((holder or {}).get("usage") or {})
    renamed = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    tokens = {renamed.get(name, name): value for name, value in counted.items()}
    return tokens["input_tokens"], tokens["output_tokens"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_answer_says_what_it_has_cost(path: str, stream: bool) -> None:
    async with provider(INSTANT) as one:
        answer = await post(one.url, path, text="x" * 400, stream=stream)

    assert usage(answer.text) == (one.world.tokens_in, one.world.tokens_out)
    assert one.world.tokens_in == 100
    assert one.world.tokens_lost == 0


LIMITED = attrs.evolve(
    STEADY,
    requests=Quota(limit=60, burst=2),
    input=Quota(limit=50_000),
    output=Quota(limit=8_000),
)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_anthropic_s_headers_are_on_successes_and_on_429s(stream: bool) -> None:
    async with provider(LIMITED) as one:
        answers = [await post(one.url, stream=stream) for _ in range(3)]
    told = [{name: value for name, value in answer.headers.items() if "ratelimit" in name} for answer in answers]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    for headers in told:
        assert headers.keys() == {
            f"anthropic-ratelimit-{what}-{part}"
            for what in ("requests", "input-tokens", "output-tokens")
            for part in ("limit", "remaining", "reset")
        }
    assert [headers["anthropic-ratelimit-requests-remaining"] for headers in told] == ["1", "0", "0"]
    assert [headers["anthropic-ratelimit-requests-limit"] for headers in told] == ["60"] * 3
    assert {headers["anthropic-ratelimit-output-tokens-limit"] for headers in told} == {"8000"}
    assert [answer.headers.get("retry-after") for answer in answers] == [None, None, "1"]
    assert answers[2].json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_openai_s_headers_are_on_successes_and_on_429s(path: str) -> None:
    async with provider(LIMITED) as one:
        answers = [await post(one.url, path) for _ in range(3)]
    told = [{name: value for name, value in answer.headers.items() if "ratelimit" in name} for answer in answers]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    for headers in told:
        assert headers.keys() == {
            f"x-ratelimit-{part}-{what}" for what in ("requests", "tokens") for part in ("limit", "remaining", "reset")
        }
    # Tokens are counted together: 8,000 and 50,000.
    assert [headers["x-ratelimit-remaining-requests"] for headers in told] == ["1", "0", "0"]
    assert {headers["x-ratelimit-limit-tokens"] for headers in told} == {"58000"}
    assert 57_600 < int(told[2]["x-ratelimit-remaining-tokens"]) < 58_000
    assert answers[2].json()["error"] | {"message": ""} == {
        "message": "",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert answers[2].headers["retry-after"] == "1"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("traits", "said"),
    [
        (Traits(requests=Quota(limit=1)), "requests"),
        (Traits(input=Quota(limit=12)), "input tokens"),
        (Traits(output=Quota(limit=9)), "output tokens"),
    ],
    ids=["requests", "input", "output"],
)
async def test_the_proxy_reads_a_429_as_a_quota_and_when_it_is_over(path: str, traits: Traits, said: str) -> None:
    instant = attrs.evolve(traits, latency_mean_ns=0, latency_sigma_ns=0, latency_min_ns=0)
    async with provider(instant) as one:
        await post(one.url, path)
        refused = await post(one.url, path, text="again")

    signal = read_signal(refused.status_code, refused.headers, refused.content)

    assert signal.outcome is Outcome.QUOTA
    assert said in refused.json()["error"]["message"]
    assert signal.retry_after_ns is not None
    assert signal.retry_after_ns >= int(refused.headers["retry-after"]) * SECOND
    assert not signal.final


async def test_without_a_quota_there_are_no_such_headers() -> None:
    async with provider(INSTANT) as one:
        answer = await post(one.url)

    assert answer.headers.keys() == {"content-type", "content-length"}


READINGS = {
    Metered.REQUESTS: Reading(limit=3000, remaining=2999, full_ns=20_000_000),
    Metered.INPUT: Reading(limit=80_000, remaining=79_501, full_ns=375_000_000),
    Metered.OUTPUT: Reading(limit=16_000, remaining=8_499, full_ns=90 * SECOND),
}


def test_tokens_are_rounded_as_anthropic_does_and_resets_are_points_in_time() -> None:
    headers = {name.decode(): value.decode() for name, value in anthropic(READINGS, 500_000_000)}

    assert headers == {
        "anthropic-ratelimit-requests-limit": "3000",
        "anthropic-ratelimit-requests-remaining": "2999",
        "anthropic-ratelimit-requests-reset": "2026-09-21T14:13:21Z",
        "anthropic-ratelimit-input-tokens-limit": "80000",
        "anthropic-ratelimit-input-tokens-remaining": "80000",
        "anthropic-ratelimit-input-tokens-reset": "2026-09-21T14:13:21Z",
        "anthropic-ratelimit-output-tokens-limit": "16000",
        "anthropic-ratelimit-output-tokens-remaining": "8000",
        "anthropic-ratelimit-output-tokens-reset": "2026-09-21T14:14:51Z",
        "date": "Mon, 21 Sep 2026 14:13:20 GMT",
    }


def test_openai_has_one_figure_for_tokens_and_durations_for_resets() -> None:
    headers = {name.decode(): value.decode() for name, value in openai(READINGS, 500_000_000)}

    assert headers == {
        "x-ratelimit-limit-requests": "3000",
        "x-ratelimit-remaining-requests": "2999",
        "x-ratelimit-reset-requests": "20ms",
        "x-ratelimit-limit-tokens": "96000",
        "x-ratelimit-remaining-tokens": "88000",
        "x-ratelimit-reset-tokens": "1m30s",
        "date": "Mon, 21 Sep 2026 14:13:20 GMT",
    }


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (20_000_000, "20ms"),
        (999_000_001, "1s"),
        (1_500_000_000, "1.5s"),
        (7_660_000_000, "7.66s"),
        (59_999_000_000, "59.999s"),
        (360 * SECOND, "6m0s"),
        (3_723_004_000_000, "1h2m3.004s"),
    ],
)
def test_durations_are_written_as_go_writes_them(ns: int, text: str) -> None:
    assert go_duration(ns) == text


@pytest.mark.parametrize(("ns", "text"), [(1, b"1"), (SECOND, b"1"), (SECOND + 1, b"2"), (59 * SECOND, b"59")])
def test_retry_after_never_sends_anybody_back_too_early(ns: int, text: bytes) -> None:
    assert retry_after(ns) == [(b"retry-after", text)]


async def test_a_gateway_s_502_is_a_page_and_the_connection_lives_on() -> None:
    async with provider(attrs.evolve(INSTANT, bad_gateways=1.0)) as one, httpx2.AsyncClient() as client:
        answers = [await client.post(f"{one.url}/v1/messages", json={"messages": []}) for _ in range(3)]

    assert {answer.status_code for answer in answers} == {502}
    assert {answer.headers["content-type"] for answer in answers} == {"text/html"}
    assert one.connections_made == 1
    assert one.world.met == {Trouble.BAD_GATEWAY: 3}


async def test_a_reset_before_the_answer_is_one_on_the_wire() -> None:
    async with provider(attrs.evolve(INSTANT, resets=1.0)) as one:
        with pytest.raises(httpx2.ReadError):
            await post(one.url)

    assert one.world.met == {Trouble.RESET: 1}
    assert (one.world.inflight, one.hangups) == (0, 0)


async def test_a_stream_that_breaks_has_begun_and_is_reset() -> None:
    broken = attrs.evolve(STEADY, breaks=1.0)
    got = b""

    async def read(url: str) -> None:
        nonlocal got
        asked = {"stream": True, "messages": [{"role": "user", "content": "2"}]}
        async with httpx2.AsyncClient() as client, client.stream("POST", f"{url}/v1/messages", json=asked) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_raw():
                got += piece

    async with provider(broken) as one:
        with pytest.raises(httpx2.ReadError):
            await read(one.url)

    events = got.count(b"event: content_block_delta")
    assert b"event: message_start" in got
    assert b"message_stop" not in got
    assert one.world.tokens_out == 10 * events
    assert one.world.tokens_lost == 10 * events + one.world.tokens_in
    assert one.world.met == {Trouble.BREAK: 1}
    assert (one.world.inflight, one.hangups) == (0, 0)


@pytest.mark.slow
async def test_an_outage_is_over_when_it_said() -> None:
    async with provider(attrs.evolve(INSTANT, outages=((0, SECOND // 5),))) as one:
        during = await post(one.url)
        await trio.sleep((SECOND // 5 - one.now_ns()) / 1e9 + 0.001)
        after = await post(one.url)

    assert (during.status_code, after.status_code) == (503, 200)


async def test_tokens_of_an_answer_that_nobody_waited_for_are_lost_and_its_slot_is_not() -> None:
    slow = attrs.evolve(STEADY, latency_mean_ns=20 * SECOND)
    async with provider(slow) as one:
        async with trio.open_nursery() as callers:
            callers.start_soon(post, one.url)
            await one.until(lambda: one.world.inflight == 1)
            callers.cancel_scope.cancel()
        await one.until(lambda: one.hangups == 1)

    assert (one.world.inflight, one.world.tokens_lost) == (0, one.world.tokens_in)
    assert one.world.tokens_in > 0


def test_h11_accepts_every_header_that_is_sent() -> None:
    headers = [*anthropic(READINGS, 1), *openai(READINGS, 1), *retry_after(1)]

    assert len(h11.Response(status_code=200, headers=headers).headers) == len(headers)
