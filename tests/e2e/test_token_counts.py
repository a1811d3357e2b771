"""Prompts that are counted before they are scheduled, over real sockets: by the provider or by a tokenizer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx2
import pytest
import trio

from bench.plan_provider import PlanProvider
from bench.plan_provider import serving as providing
from hivemind_trio.admin.provider import provider_view
from hivemind_trio.proxy.counting import prompt_counts, tokenizer
from hivemind_trio.wire import done
from hivemind_trio.wire.request.token_counting import COUNTED_MAX, counting
from tests.admin.test_policy import operated, read

from .house import Place, standing
from .test_features import TLS

EXACT = """
hmp 1
provider claude { api anthropic; base env(UPSTREAM); estimate exact; limits { input 100k/min; window sliding } }
rule no when model == "denied" { deny }
"""
"""A call of more than a hundred thousand tokens is rejected at once (413)."""


async def ask(place: Place, path: str = "/v1/messages", *, system: str = "Be brief.", **more: str) -> httpx2.Response:
    body = {"model": more.get("model", "claude-x"), "max_tokens": 5, "stream": False, "system": system}
    body["messages"] = [{"role": "user", "content": "hi"}]
    if "contents" in more:
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "systemInstruction": {"parts": []}}
    async with httpx2.AsyncClient(timeout=None, verify=TLS) as client:
        headers = {"x-api-key": more.get("key", "mine"), "x-job": more.get("job", "")}
        return await client.post(f"{place.url}{path}", content=json.dumps(body), headers=headers)


async def test_the_provider_counts_each_beginning_of_a_prompt_once_with_the_callers_credential() -> None:
    plan = PlanProvider(counts=900)
    with providing(plan) as url:
        async with standing(EXACT, secrets={"UPSTREAM": url}) as place:
            small = [await ask(place) for _ in range(2)]
            plan.counts = 500_000
            large = await ask(place, system="Be long.")
            denied = await ask(place, system="Other.", model="denied")

    assert [answer.status_code for answer in (*small, large, denied)] == [200, 200, 413, 403]
    assert [(key, path) for key, path, _ in plan.counted] == [("mine", "/v1/messages/count_tokens")] * 2
    assert plan.counted[0][2] == {
        "model": "claude-x", "system": "Be brief.", "messages": [{"role": "user", "content": "hi"}]
    }  # fmt: skip


async def test_without_a_count_calls_are_estimated_and_the_provider_is_left_alone_for_a_while() -> None:
    plan = PlanProvider()
    with providing(plan) as url:
        async with standing(EXACT, secrets={"UPSTREAM": url}) as place:
            answers = [await ask(place, system=f"Be {number}.") for number in range(3)]
            others = await ask(place, key="another's")
            said = place.house.door.counts.errors

    assert [answer.status_code for answer in (*answers, others)] == [200] * 4
    assert said == {"claude": "/v1/messages/count_tokens answered 404"}
    assert [key for key, _, _ in plan.counted] == ["mine", "another's"], "each credential by itself"


async def test_a_slow_count_holds_a_call_up_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_counts, "BOUND_S", 0.05)
    plan = PlanProvider(counts=900, counts_s=0.5)
    with providing(plan) as url:
        async with standing(EXACT, secrets={"UPSTREAM": url}) as place:
            answers: list[int] = []

            async def one() -> None:
                answers.append((await ask(place)).status_code)

            async with trio.open_nursery() as callers:
                callers.start_soon(one)
                callers.start_soon(one)
            said = place.house.door.counts.errors

    assert answers == [200, 200]
    assert len(plan.counted) == 1, "both waited for one answer"
    assert said == {"claude": "no answer within 0.05 s"}


async def test_gemini_counts_the_whole_request_under_the_name_of_its_model() -> None:
    plan = PlanProvider(counts=500_000)
    policy = EXACT.replace("api anthropic", "api gemini; key env(KEY)")
    with providing(plan) as url:
        async with standing(policy, secrets={"UPSTREAM": url, "KEY": "key-of-the-provider"}) as place:
            path = "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse&key=callers"
            answer = await ask(place, path, contents="yes")

    assert answer.status_code == 413
    ((_, asked, body),) = plan.counted
    assert asked == "/v1beta/models/gemini-2.5-pro:countTokens"
    assert body["generateContentRequest"]["model"] == "models/gemini-2.5-pro"
    assert body["generateContentRequest"]["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


RENAMED = """
rule other when model ~ "*fast" {{ model "{given}" }}
model "{given}" on {provider} {{ name "{sent}" }}
"""


async def test_the_provider_counts_for_the_model_that_is_sent() -> None:
    anthropic = EXACT + RENAMED.format(given="claude-y", provider="claude", sent="eu.claude-y")
    gemini = EXACT.replace("api anthropic", "api gemini; key env(KEY)")
    gemini += RENAMED.format(given="gemini-y", provider="claude", sent="gemini-y-001")
    plan = PlanProvider(counts=900)
    with providing(plan) as url:
        async with standing(anthropic, secrets={"UPSTREAM": url}) as place:
            await ask(place, model="fast")
        async with standing(gemini, secrets={"UPSTREAM": url, "KEY": "key-of-the-provider"}) as place:
            await ask(place, "/v1beta/models/fast:generateContent", contents="yes")

    (_, _, messages), (_, path, contents) = plan.counted
    assert messages["model"] == "eu.claude-y"
    assert path == "/v1beta/models/gemini-y-001:countTokens"
    assert contents["generateContentRequest"]["model"] == "models/gemini-y-001"


async def test_a_count_is_kept_for_the_model_that_is_sent() -> None:
    policy = EXACT + 'rule other when header.x-job == "theirs" { model "claude-y" }\n'
    plan = PlanProvider(counts=900)
    with providing(plan) as url:
        async with standing(policy, secrets={"UPSTREAM": url}) as place:
            for job in ("mine", "theirs", "mine", "theirs"):
                await ask(place, job=job)

    assert [body["model"] for _, _, body in plan.counted] == ["claude-x", "claude-y"]


async def test_an_error_of_a_count_is_shown_while_the_policy_wants_counts(tmp_path: Path) -> None:
    loaded = read(tmp_path, EXACT)
    with providing(PlanProvider()) as url:
        async with standing(EXACT, secrets={"UPSTREAM": url}) as place:
            await ask(place)
            proxy, shown = operated(place, loaded, loaded), []
            for policy in (EXACT, EXACT.replace("estimate exact", "estimate learned")):
                place.use(policy)
                view = provider_view(proxy, "claude", place.house.engine.snapshot().pools["claude"])
                shown.append((view.estimate, view.estimate_error))

    assert shown == [("exact", "/v1/messages/count_tokens answered 404"), ("learned", None)]


TOKENIZER = """
hmp 1
provider openai { base env(UPSTREAM); estimate tokenizer; limits { input 600/min; window sliding } }
"""


async def test_openai_models_are_counted_by_their_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.counter()  # which takes longer than a call waits
    words = {"spaces": " " * 12_000, "digits": "0123456789" * 200}
    answers = {}
    with providing(PlanProvider()) as url:
        async with standing(TOKENIZER, secrets={"UPSTREAM": url}) as place:
            for name, text in words.items():
                answers[name] = (await ask(place, "/v1/responses", system=text, model="gpt-5")).status_code
            other = await ask(place, "/v1/responses", system=words["spaces"], model="llama")
            answers["another's"] = other.status_code
        monkeypatch.setitem(sys.modules, "bpe_openai", None)
        tokenizer.counter.cache_clear()
        async with standing(TOKENIZER, secrets={"UPSTREAM": url}) as place:
            answers["none"] = (await ask(place, "/v1/responses", system=words["spaces"], model="gpt-5")).status_code
            said = place.house.door.counts.errors["openai"]
    tokenizer.counter.cache_clear()

    assert answers == {"spaces": 200, "digits": 413, "another's": 413, "none": 413}
    assert "needs the package bpe-openai; install `hivemind-trio[tokenizer]`" in said


@pytest.mark.parametrize(("given", "sent"), [("gpt-5", "deployment"), ("any", "gpt-5")])
async def test_the_tokenizer_is_that_of_the_model_that_is_sent(given: str, sent: str) -> None:
    tokenizer.counter()
    policy = TOKENIZER + RENAMED.format(given=given, provider="openai", sent=sent)
    with providing(PlanProvider()) as url:
        async with standing(policy, secrets={"UPSTREAM": url}) as place:
            answer = await ask(place, "/v1/responses", system=" " * 12_000, model="fast")

    assert answer.status_code == 200


def test_sounds_files_and_pictures_are_not_counted_as_text() -> None:
    data = "QUJD" * 20_000
    content = [
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "file", "file": {"file_data": data, "filename": "a.pdf"}},
        {"type": "input_file", "file_data": data},
    ]
    items = [{"role": "user", "content": content}, {"type": "image_generation_call", "result": data}]
    text = [{"type": "other_call", "result": "word"}]

    assert done(counting("", json.dumps({"input": items}).encode(), len)) == len("a.pdf") + 8
    assert done(counting("", json.dumps({"messages": items[:1]}).encode(), len)) == len("a.pdf") + 4
    assert done(counting("", json.dumps({"input": text}).encode(), len)) == len("word") + 4


def test_a_prompt_is_counted_in_steps_and_only_up_to_a_size() -> None:
    count = tokenizer.counter()
    body = {"model": "gpt-5", "instructions": "word " * 60_000, "tools": [{"name": "f"}], "input": "hi", "stream": True}
    steps = counting("", json.dumps(body).encode(), count)
    number = 0
    while True:
        try:
            next(steps)
            number += 1
        except StopIteration as end:
            counted = end.value
            break

    assert number == 18
    assert counted == pytest.approx(60_005, abs=25)
    assert done(counting("", json.dumps({"input": "x" * COUNTED_MAX}).encode(), count)) is None
    assert done(counting("", b"[" * 100_000, count)) is None
