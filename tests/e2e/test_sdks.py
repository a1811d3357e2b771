"""The providers' own SDKs talk through the proxy as if it were not there, and understand it where it speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol

import anthropic
import openai
import pytest
import trio

from hivemind_trio.demo import INSTANT, ScriptedReply
from hivemind_trio.sim import Traits
from tests.e2e.house import CAP_1, CAP_3, PATIENCE_S, TRANSPORTS, Place, in_thread, messages, standing, until

# openai-python leaves its async generators half read at the end of every stream.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")

MS = 1_000_000
BOUNDED_3 = Traits(concurrency=3, latency_mean_ns=20 * MS, latency_sigma_ns=10 * MS, latency_min_ns=MS)


class Open(Protocol):
    def __call__(self, policy: str, **options: Any) -> AbstractAsyncContextManager[Place]: ...


@pytest.fixture(params=sorted(TRANSPORTS))
def opened(request: pytest.FixtureRequest) -> Open:
    return partial(standing, transport=request.param)


@pytest.fixture
async def place(opened: Open) -> AsyncIterator[Place]:
    async with opened(CAP_3) as place:
        yield place


def async_openai(place: Place, key: str = "k", prefix: str = "", retries: int = 0) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{place.url}{prefix}/v1", api_key=key, max_retries=retries)


def sync_openai(place: Place, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(base_url=place.v1, api_key=key, max_retries=0)


def sync_anthropic(place: Place, key: str = "k", retries: int = 0) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=place.url, api_key=key, max_retries=retries)


async def chat(place: Place, text: str = "hi", **options: Any) -> str:
    async with async_openai(place, **options) as client:
        answer = await client.chat.completions.create(model="gpt-x", messages=messages(text))
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].message.content or ""


async def chat_streamed(place: Place, text: str = "hi") -> str:
    async with async_openai(place) as client:
        stream = await client.chat.completions.create(model="gpt-x", messages=messages(text), stream=True)
        chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "stop"
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def chat_in_thread(place: Place, text: str = "hi") -> str:
    with sync_openai(place) as client:
        answer = client.chat.completions.create(model="gpt-x", messages=messages(text))
        chunks = list(client.chat.completions.create(model="gpt-x", messages=messages(text), stream=True))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == answer.choices[0].message.content
    return streamed


def message(place: Place, text: str = "hi", **options: Any) -> str:
    with sync_anthropic(place, **options) as client:
        answer = client.messages.create(model="claude-x", max_tokens=500, messages=messages(text))
    assert answer.stop_reason == "end_turn"
    assert answer.content[0].type == "text"
    return answer.content[0].text


def message_streamed(place: Place, text: str = "hi") -> str:
    with (
        sync_anthropic(place) as client,
        client.messages.stream(model="claude-x", max_tokens=500, messages=messages(text)) as stream,
    ):
        streamed = "".join(stream.text_stream)
        assert stream.get_final_message().stop_reason == "end_turn"
    return streamed


async def test_openai_chat_plain_and_streamed_say_the_same(place: Place) -> None:
    plain = await chat(place)
    streamed = await chat_streamed(place)
    from_a_thread = await in_thread(lambda: chat_in_thread(place))

    assert plain == streamed == from_a_thread
    assert len(plain.split()) > 1
    assert place.provider.world.attempts == 4


async def test_openai_responses_plain_and_streamed_say_the_same(place: Place) -> None:
    def ask() -> tuple[Any, list[str], Any]:
        with sync_openai(place) as client:
            plain = client.responses.create(model="gpt-x", input="hi")
            with client.responses.stream(model="gpt-x", input="hi") as stream:
                return plain, [event.type for event in stream], stream.get_final_response()

    plain, kinds, streamed = await in_thread(ask)
    async with async_openai(place) as client:
        from_async = await client.responses.create(model="gpt-x", input="hi")

    assert plain.output_text == streamed.output_text == from_async.output_text
    assert plain.usage == streamed.usage
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


async def test_anthropic_messages_plain_and_streamed_say_the_same(place: Place) -> None:
    plain = await in_thread(lambda: message(place))
    streamed = await in_thread(lambda: message_streamed(place))

    assert plain == streamed
    assert len(plain.split()) > 1
    assert [one.status for one in place.records] == [200, 200]


async def test_what_generates_nothing_passes_though_every_slot_is_taken(opened: Open) -> None:
    def cheap(place: Place) -> int:
        with sync_anthropic(place) as client:
            assert list(client.models.list()) == []
            return client.messages.count_tokens(model="claude-x", messages=messages("x" * 400)).input_tokens

    async with opened(CAP_1) as place, trio.open_nursery() as callers:
        gate = trio.Event()
        place.provider.default = ScriptedReply(hold=gate)
        callers.start_soon(chat, place)
        await until(lambda: place.provider.world.inflight == 1)
        place.provider.default = ScriptedReply()

        counted = await in_thread(lambda: cheap(place))
        async with async_openai(place) as client:
            models = await client.models.list()
        during = place.inflight
        gate.set()

    assert counted == 100
    assert models.data == []
    assert during == 1


async def test_twenty_at_once_over_a_cap_of_three_are_all_served(opened: Open) -> None:
    answers: list[str] = []

    async with opened(CAP_3, traits=BOUNDED_3) as place:

        async def agent(number: int) -> None:
            text = f"I am number {number}"
            match number % 4:
                case 0:
                    answers.append(await chat(place, text))
                case 1:
                    answers.append(await chat_streamed(place, text))
                case 2:
                    answers.append(await in_thread(lambda: message(place, text)))
                case _:
                    answers.append(await in_thread(lambda: message_streamed(place, text)))

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as agents:
                for number in range(20):
                    agents.start_soon(agent, number)
        world = place.provider.world

    assert len(answers) == 20
    assert all(answers)
    assert (world.attempts, world.refused) == (20, 0)
    assert world.inflight_max == 3  # the cap, and all of it: an idle slot while others wait is a bug too


async def test_every_answer_says_which_call_it_was_and_what_it_waited_for(opened: Open) -> None:
    async with opened(CAP_1) as place, async_openai(place) as client:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))
        headers: dict[str, Any] = {}

        async def ask(name: str) -> None:
            answer = await client.chat.completions.with_raw_response.create(model="gpt-x", messages=messages())
            headers[name] = answer.headers

        async with trio.open_nursery() as callers:
            callers.start_soon(ask, "first")
            await until(lambda: place.inflight == 1)
            callers.start_soon(ask, "second")
            await until(lambda: place.waiting == 1)
            gate.set()

    first, second = headers["first"], headers["second"]
    assert (first["x-hivemind-reason"], first["x-hivemind-wait-ms"]) == ("none", "0")
    assert second["x-hivemind-reason"] == "provider-concurrency"
    assert int(second["x-hivemind-wait-ms"]) == place.records[1].waited_ms
    assert [first["x-hivemind-call"], second["x-hivemind-call"]] == [one.id for one in place.records]
    assert first["x-hivemind-attempts"] == second["x-hivemind-attempts"] == "1"
    assert first["x-hivemind-policy"] == place.house.engine.program.hash[:8]


# ---- hanging up ----


async def test_hanging_up_in_mid_stream_ends_the_generation_and_frees_the_slot(opened: Open) -> None:
    async with opened(CAP_1) as place, async_openai(place) as client:
        place.provider.replies.append(ScriptedReply(hold_after=(1, trio.Event())))
        stream = await client.chat.completions.create(model="gpt-x", messages=messages("a"), stream=True)
        await anext(aiter(stream))

        await stream.close()
        with trio.fail_after(PATIENCE_S):
            await place.provider.until(lambda: place.provider.hangups == 1)
            answer = await chat(place)

    assert answer
    assert place.provider.world.refused == 0
    assert place.provider.world.inflight_max == 1


async def test_a_thread_that_hangs_up_in_mid_stream_is_noticed_too(opened: Open) -> None:
    def begin_and_leave(place: Place) -> None:
        with (
            sync_anthropic(place) as client,
            client.messages.stream(model="claude-x", max_tokens=500, messages=messages()) as stream,
        ):
            next(iter(stream))

    async with opened(CAP_1) as place:
        place.provider.replies.append(ScriptedReply(hold_after=(1, trio.Event())))

        await in_thread(lambda: begin_and_leave(place))
        with trio.fail_after(PATIENCE_S):
            await place.provider.until(lambda: place.provider.hangups == 1)
            assert await in_thread(lambda: message(place))

    assert place.provider.world.inflight_max == 1


async def test_hanging_up_while_waiting_leaves_the_queue_and_never_reaches_the_provider(opened: Open) -> None:
    async with opened(CAP_1) as place, trio.open_nursery() as callers:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))
        callers.start_soon(chat, place, "first")
        await until(lambda: place.inflight == 1)

        async with trio.open_nursery() as impatient:
            impatient.start_soon(chat, place, "second")
            await until(lambda: place.waiting == 1)
            impatient.cancel_scope.cancel()
        await until(lambda: place.waiting == 0)
        callers.start_soon(chat, place, "third")
        await until(lambda: place.waiting == 1)
        gate.set()

    assert [b"first" in seen.body or b"third" in seen.body for seen in place.provider.seen] == [True, True]
    assert sorted(one.status for one in place.records) == [0, 200, 200]


async def test_hanging_up_on_a_silent_provider_frees_the_slot(opened: Open) -> None:
    async with opened(CAP_1) as place:
        place.provider.replies.append(ScriptedReply(hold=trio.Event()))

        async with trio.open_nursery() as impatient:
            impatient.start_soon(chat, place)
            await until(lambda: place.provider.world.inflight == 1)
            impatient.cancel_scope.cancel()
        with trio.fail_after(PATIENCE_S):
            assert await chat(place)

    assert place.provider.hangups == 1
    assert place.provider.world.inflight_max == 1


# ---- being refused; what never gets as far as a transport is tested without choosing one ----


async def test_a_full_queue_is_a_rate_limit_error_that_says_when_to_come_back(opened: Open) -> None:
    policy = CAP_1 + "lane only { weight 1; queue 0 }\nrule all { lane only }\n"
    async with opened(policy) as place, trio.open_nursery() as callers:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))
        callers.start_soon(chat, place)
        await until(lambda: place.inflight == 1)

        with pytest.raises(openai.RateLimitError) as by_openai:
            await chat(place)
        with pytest.raises(anthropic.RateLimitError) as by_anthropic:
            await in_thread(lambda: message(place))
        gate.set()

    for refused in (by_openai.value, by_anthropic.value):
        assert 1 <= int(refused.response.headers["retry-after"]) <= 60
        assert refused.response.headers["x-hivemind-reason"] == "queue-full"
        assert "hivemind-trio" in str(refused)
        assert "`only`" in str(refused)
    assert by_openai.value.code == "queue-full"
    assert by_anthropic.value.type == "rate_limit_error"
    assert place.provider.world.attempts == 1


async def test_a_denied_call_hears_the_rules_words_and_is_not_tried_again() -> None:
    policy = CAP_3 + 'rule no-opus when model ~ "*-x" { deny "Opus is reserved for platform" }\n'
    async with standing(policy) as place:
        with pytest.raises(openai.PermissionDeniedError, match="Opus is reserved for platform") as denied:
            await chat(place, retries=2)
        with pytest.raises(anthropic.PermissionDeniedError, match="Opus is reserved for platform"):
            await in_thread(lambda: message(place, retries=2))

    assert denied.value.response.headers["x-should-retry"] == "false"
    assert [one.status for one in place.records] == [403, 403]
    assert not place.provider.seen


async def test_an_unknown_agent_is_an_authentication_error_where_the_policy_demands_one() -> None:
    policy = CAP_3.replace("concurrency 3", "concurrency 3; key env(KEY)")
    policy += "server { unknown-agent deny }\nagent ci { token env(CI) }\n"
    async with standing(policy, secrets={"KEY": "the-providers", "CI": "the-agents"}) as place:
        with pytest.raises(openai.AuthenticationError):
            await chat(place, key="nobodys", retries=2)
        with pytest.raises(anthropic.AuthenticationError):
            await in_thread(lambda: message(place, key="nobodys", retries=2))
        with pytest.raises(openai.AuthenticationError):
            await chat(place, key="nobodys", prefix="/@ci")  # whose token was not shown
        assert not place.provider.seen

        assert await chat(place, key="the-agents")

    assert [one.status for one in place.records] == [401, 401, 401, 200]
    assert place.records[-1].agent == "ci"


async def test_a_model_that_nobody_serves_is_not_found_and_the_providers_are_named() -> None:
    policy = CAP_3.replace("api generic;", 'api generic; serves ["qwen*"];')
    async with standing(policy) as place:
        with pytest.raises(openai.NotFoundError, match=r"gpt-x.*sim \(generic: qwen\*\)"):
            await chat(place)

    assert not place.provider.seen


async def test_a_body_over_the_limit_is_refused_and_the_client_can_read_it() -> None:
    async with standing(CAP_3 + "server { max-body 4KiB }\n") as place:
        with pytest.raises(openai.APIStatusError, match="4,096 bytes") as refused:
            await chat(place, "x" * 200_000)

    assert refused.value.status_code == 413
    assert not place.provider.seen


async def test_a_provider_that_is_not_there_is_a_server_error_with_a_time_to_come_back(opened: Open) -> None:
    policy = CAP_3.replace("env(UPSTREAM)", '"http://127.0.0.1:1"') + "retry default { attempts 2; backoff 1ms..1ms }"
    async with opened(policy) as place:
        with pytest.raises(openai.InternalServerError, match="`sim` is unreachable") as refused:
            await chat(place)

    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"] == "5"


async def test_what_the_provider_refuses_for_good_passes_as_it_is(opened: Open) -> None:
    reply = ScriptedReply(
        status=429, headers=[(b"retry-after", b"7"), (b"anthropic-ratelimit-x", b"1")], body=b'{"error":{}}'
    )
    async with opened(CAP_3 + "retry default { attempts 1 }") as place:
        place.provider.replies.append(reply)

        with pytest.raises(anthropic.RateLimitError) as refused:
            await in_thread(lambda: message(place))

    assert refused.value.response.content == reply.body
    assert refused.value.response.headers["retry-after"] == "7"
    assert refused.value.response.headers["anthropic-ratelimit-x"] == "1"


@pytest.mark.parametrize("reset", [False, True], ids=["closes", "resets"])
async def test_an_answer_that_breaks_off_is_an_error_and_never_an_end(opened: Open, reset: bool) -> None:
    async with opened(CAP_3) as place:
        place.provider.default = ScriptedReply(die_after=2, reset=reset)

        with pytest.raises(openai.APIError, match="broke off"):
            await chat_streamed(place)
        with pytest.raises(anthropic.APIStatusError, match="broke off"):
            await in_thread(lambda: message_streamed(place))
        with pytest.raises(openai.APIConnectionError):
            await chat(place)

    assert place.provider.world.attempts == 3
    assert all(one.upstream_error for one in place.records)


# ---- who calls, and with whose key ----


async def test_an_agents_token_is_taken_and_the_providers_key_goes_in_its_place(opened: Open) -> None:
    policy = """
    hmp 1
    provider anthropic { base env(UPSTREAM); key env(KEY_A) }
    provider openai { base env(UPSTREAM); key env(KEY_O) }
    agent ci { token env(CI) }
    """
    secrets = {"KEY_A": "anthropics-key", "KEY_O": "openais-key", "CI": "agents-token"}
    async with opened(policy, secrets=secrets) as place:
        assert await in_thread(lambda: message(place, key="agents-token"))
        assert await chat(place, key="agents-token")

        to_anthropic, to_openai = place.sent(0), place.sent(1)

    assert (to_anthropic.get(b"x-api-key"), to_anthropic.get(b"authorization")) == (b"anthropics-key", None)
    assert (to_openai.get(b"x-api-key"), to_openai.get(b"authorization")) == (None, b"Bearer openais-key")
    assert not any(b"agents-token" in value for seen in place.provider.seen for _, value in seen.headers)
    assert [one.agent for one in place.records] == ["ci", "ci"]


async def test_an_agents_token_goes_nowhere_where_the_provider_has_no_key() -> None:
    policy = CAP_3 + "agent ci { token env(CI) }\n"
    async with standing(policy, secrets={"CI": "agents-token"}) as place:
        with pytest.raises(openai.PermissionDeniedError, match=r"key env\(NAME\)"):
            await chat(place, key="agents-token")

    assert not place.provider.seen


async def test_without_a_key_in_the_policy_the_agents_own_goes_through(place: Place) -> None:
    await chat(place, key="my-own")

    assert place.sent()[b"authorization"] == b"Bearer my-own"
    assert not any(name.startswith(b"x-hivemind") for name in place.sent())


async def test_a_name_in_the_base_url_says_who_calls_and_the_provider_does_not_see_it(opened: Open) -> None:
    policy = CAP_3 + "lane slow { weight 1; max 1 }\nagent ci { lane slow }\n"
    async with opened(policy) as place:
        assert await chat(place, prefix="/@ci")
        assert await chat(place)
        targets = [seen.target for seen in place.provider.seen]

    assert targets == [b"/v1/chat/completions"] * 2
    assert [(one.agent, one.lane) for one in place.records] == [("ci", "slow"), ("unknown", "default")]


async def test_agents_with_a_cap_of_their_own_do_not_take_each_others_slots(opened: Open) -> None:
    policy = CAP_3 + "agent greedy { concurrency 1 }\n"
    async with opened(policy, traits=INSTANT) as place, trio.open_nursery() as callers:
        gate = trio.Event()
        place.provider.default = ScriptedReply(hold=gate)
        for _ in range(5):
            callers.start_soon(partial(chat, place, prefix="/@greedy"))
        await until(lambda: place.waiting == 4 and place.provider.world.inflight == 1)
        place.provider.default = ScriptedReply()

        assert await chat(place)
        during = place.inflight
        gate.set()

    assert during == 1
    assert place.provider.world.inflight_max == 2
