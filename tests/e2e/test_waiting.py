"""The SDKs read a stream that was kept alive while its call waited."""

from __future__ import annotations

from collections.abc import Callable

import anthropic
import openai
import pytest
import trio

from hivemind_trio.demo import ScriptedReply

from .house import Place, in_thread, messages, standing, until

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

IMPATIENT = """
hmp 1
server { wait silent 10ms hold 60s }
provider sim { api generic; base env(UPSTREAM); concurrency 1 }
"""


def message(place: Place) -> str:
    with (
        anthropic.Anthropic(base_url=place.url, api_key="k", max_retries=0) as client,
        client.messages.stream(model="claude-x", max_tokens=99, messages=messages("hi")) as stream,
    ):
        return "".join(stream.text_stream)


def chat(place: Place) -> str:
    with (
        openai.OpenAI(base_url=place.v1, api_key="k", max_retries=0) as client,
        client.chat.completions.create(model="m", messages=messages("hi"), stream=True) as stream,
    ):
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def response(place: Place) -> str:
    with (
        openai.OpenAI(base_url=place.v1, api_key="k", max_retries=0) as client,
        client.responses.create(model="m", input="hi", stream=True) as stream,
    ):
        return "".join(event.delta for event in stream if event.type == "response.output_text.delta")


@pytest.mark.parametrize("ask", [message, chat, response])
async def test_an_sdk_reads_what_was_kept_alive(ask: Callable[[Place], str]) -> None:
    said: list[str] = []

    async def late(place: Place) -> None:
        said.append(await in_thread(lambda: ask(place)))

    async with standing(IMPATIENT) as place, trio.open_nursery() as nursery:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))
        nursery.start_soon(late, place)
        await until(lambda: place.inflight == 1)
        nursery.start_soon(late, place)
        await until(lambda: place.waiting == 1)
        await trio.sleep(0.05)  # the head of the answer is on its way, with the first keep-alive behind it
        gate.set()

    assert len(said) == 2
    assert all(said)
    assert sorted(record.waited_ms > 0 for record in place.records) == [False, True]
