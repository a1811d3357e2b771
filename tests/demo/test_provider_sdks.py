"""The simulated provider speaks as the real ones do: their own SDKs read it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import anthropic
import openai
import pytest
import trio

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from hivemind_trio.sim import Traits

T = TypeVar("T")


@pytest.fixture
async def provider(nursery: trio.Nursery) -> AsyncIterator[SimulatedProvider]:
    provider = SimulatedProvider(Traits(concurrency=2, latency_mean_ns=0, latency_sigma_ns=0, latency_min_ns=0), seed=7)
    await nursery.start(provider.run)
    yield provider
    nursery.cancel_scope.cancel()


async def in_thread(ask: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(ask)


def messages(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def test_anthropic_reads_a_plain_answer(provider: SimulatedProvider) -> None:
    def ask() -> anthropic.types.Message:
        with anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0) as client:
            return client.messages.create(model="claude-x", max_tokens=1000, messages=messages("hi"))

    answer = await in_thread(ask)

    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens == provider.world.tokens_out > 0
    assert answer.content[0].type == "text"
    assert len(answer.content[0].text.split()) == answer.usage.output_tokens


async def test_anthropic_reads_a_stream(provider: SimulatedProvider) -> None:
    def ask() -> tuple[str, anthropic.types.Message]:
        with (
            anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0) as client,
            client.messages.stream(model="claude-x", max_tokens=1000, messages=messages("hi")) as stream,
        ):
            return "".join(stream.text_stream), stream.get_final_message()

    text, answer = await in_thread(ask)

    assert len(text.split()) == answer.usage.output_tokens == provider.world.tokens_out > 0
    assert answer.usage.input_tokens == provider.world.tokens_in
    assert answer.stop_reason == "end_turn"


async def test_openai_chat_reads_a_plain_answer(provider: SimulatedProvider) -> None:
    async with openai.AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="k", max_retries=0) as client:
        answer = await client.chat.completions.create(model="gpt-x", messages=messages("hi"))

    assert answer.usage is not None
    assert answer.usage.completion_tokens == provider.world.tokens_out
    assert answer.choices[0].finish_reason == "stop"
    assert len((answer.choices[0].message.content or "").split()) == provider.world.tokens_out


async def test_openai_chat_streams_usage_only_if_asked_to(provider: SimulatedProvider) -> None:
    def ask(**options: Any) -> list[Any]:
        with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="k", max_retries=0) as client:
            return list(client.chat.completions.create(model="m", messages=messages("hi"), stream=True, **options))

    without = await in_thread(ask)
    tokens_out = provider.world.tokens_out
    with_usage = await in_thread(lambda: ask(stream_options={"include_usage": True}))

    text = "".join(chunk.choices[0].delta.content or "" for chunk in without)
    assert len(text.split()) == tokens_out > 0
    assert not any(chunk.usage for chunk in without)
    assert with_usage[-1].usage.completion_tokens == tokens_out


@pytest.mark.slow
async def test_openai_responses_reads_both_forms(provider: SimulatedProvider) -> None:
    def ask() -> tuple[Any, list[str], Any]:
        with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="k", max_retries=0) as client:
            plain = client.responses.create(model="gpt-x", input="hi")
            with client.responses.stream(model="gpt-x", input="hi") as stream:
                kinds: list[str] = [event.type for event in stream]
                return plain, kinds, stream.get_final_response()

    plain, kinds, streamed = await in_thread(ask)

    assert plain.output_text == streamed.output_text
    assert plain.usage == streamed.usage
    assert len(plain.output_text.split()) == plain.usage.output_tokens > 0
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"


async def test_counting_tokens_and_listing_models_take_no_slot(provider: SimulatedProvider) -> None:
    def ask() -> tuple[int, list[Any]]:
        with anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0) as client:
            counted = client.messages.count_tokens(model="claude-x", messages=messages("x" * 400))
            return counted.input_tokens, list(client.models.list())

    assert await in_thread(ask) == (100, [])
    assert provider.world.attempts == 0


async def test_the_sdks_see_an_overload_as_such(provider: SimulatedProvider) -> None:
    gate = trio.Event()
    provider.default = ScriptedReply(hold=gate)

    def overloaded() -> None:
        with anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0) as other:
            other.messages.create(model="m", max_tokens=9, messages=messages("hi"))

    async with (
        openai.AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="k", max_retries=0) as client,
        trio.open_nursery() as callers,
    ):
        for _ in range(2):
            callers.start_soon(lambda: client.chat.completions.create(model="m", messages=messages("hi")))
        await provider.until(lambda: provider.world.inflight == 2)

        with pytest.raises(anthropic.APIStatusError) as refused:
            await in_thread(overloaded)
        gate.set()

    assert refused.value.status_code == 529
    assert refused.value.type == "overloaded_error"
    assert provider.world.refused == 1
