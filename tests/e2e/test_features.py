"""One test for each feature of the README, over real sockets, that fails when the feature does nothing.

`python -m tests.unplug` unplugs them one at a time and shows which test notices. Nothing here is about time: the
provider answers when its gate is opened, and orders are read from what it has seen.
"""

from __future__ import annotations

import json
import ssl
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

import attrs
import httpx2
import trio

from bench.plan_provider import PlanProvider
from bench.plan_provider import serving as providing
from hivemind_trio.demo import INSTANT, ScriptedReply
from hivemind_trio.model import Reason
from tests import unplug

from . import house
from .house import CAP_1, CAP_3, Place, messages, standing, until

TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Never used. To make one takes so long that forty at once are an overload, which the proxy answers with 503."""

CLOSED: Final = 'provider down { api generic; base "http://127.0.0.1:1"; fallback sim }\n'
ONCE: Final = "retry default { attempts 1 }\n"
RETRY: Final = "retry default { attempts 60; backoff 1ms..20ms; ratio 100% }\n"


async def ask(place: Place, model: str = "m", *, name: str = "", **options: Any) -> httpx2.Response:
    """One call of an agent of that name, which dies of its first error."""
    prefix = f"/@{name}" if name else ""
    async with httpx2.AsyncClient(timeout=None, verify=TLS) as client:
        return await client.post(
            f"{place.url}{prefix}/v1/chat/completions",
            json={"model": model, "messages": messages()},
            headers=options.get("headers"),
        )


def models(place: Place) -> list[str]:
    """The models of the provider's requests, in the order in which they came."""
    return [json.loads(seen.body)["model"] for seen in place.provider.seen]


def _waits(place: Place, number: int) -> bool:
    return place.waiting == number


async def queue(place: Place, callers: trio.Nursery, *calls: tuple[str, str]) -> trio.Event:
    """Have one call hold the only slot and the others wait, in this order: agent and model. Return the gate."""
    gate = trio.Event()
    place.provider.replies.append(ScriptedReply(hold=gate))
    callers.start_soon(ask, place, "first")
    await until(lambda: len(place.provider.seen) == 1)
    for number, (name, model) in enumerate(calls, 1):
        callers.start_soon(partial(ask, place, model, name=name))
        await until(partial(_waits, place, number))
    return gate


async def order(policy: str, *calls: tuple[str, str]) -> list[str]:
    """Return the order in which waiting calls are sent to a provider with one slot."""
    async with standing(policy) as place:
        async with trio.open_nursery() as callers:
            (await queue(place, callers, *calls)).set()
        return models(place)[1:]


async def test_concurrency() -> None:
    async with standing(CAP_3) as place, trio.open_nursery() as callers:
        gate = trio.Event()
        place.provider.default = ScriptedReply(hold=gate)
        for _ in range(7):
            callers.start_soon(ask, place)
        await until(lambda: place.waiting + len(place.provider.seen) == 7)
        sent = len(place.provider.seen)
        gate.set()

    assert sent == 3
    assert place.provider.world.inflight_max == 3


async def test_lanes() -> None:
    policy = (
        CAP_1 + "lane batch { weight 1 }\nlane people { weight 4 }\nagent ci { lane batch }\nagent me { lane people }"
    )

    served = await order(policy, *[("ci", "batch")] * 3, *[("me", "people")] * 5)

    assert served[:5].count("people") == 4


async def sent_of(policy: str, *calls: tuple[str, str]) -> tuple[list[str], int]:
    """Return the models that are sent while none is answered, of calls that come one after another; and who waits."""
    async with standing(policy) as place, trio.open_nursery() as callers:
        gate = trio.Event()
        place.provider.default = ScriptedReply(hold=gate)
        for number, (name, model) in enumerate(calls, 1):
            callers.start_soon(partial(ask, place, model, name=name))
            await until(lambda number=number: place.waiting + len(place.provider.seen) == number)  # type: ignore[misc]
        found = models(place), place.waiting
        gate.set()
    return found


async def test_reserves() -> None:
    policy = CAP_3 + "lane people { reserve 1 }\nlane batch { }\nagent ci { lane batch }\nagent me { lane people }"

    assert await sent_of(policy, *[("ci", "batch")] * 3, ("me", "people")) == (["batch", "batch", "people"], 1)


async def test_slots_of_lanes() -> None:
    policy = CAP_3 + "lane batch { max 1 }\nagent ci { lane batch }\nagent me { }"

    assert await sent_of(policy, *[("ci", "batch")] * 2, ("me", "other")) == (["batch", "other"], 1)


async def test_slots_of_agents() -> None:
    policy = CAP_3 + "agent ci { concurrency 1 }\nagent me { }"

    assert await sent_of(policy, *[("ci", "one")] * 2, ("me", "other")) == (["one", "other"], 1)


async def test_slots_of_models() -> None:
    policy = CAP_3.replace("concurrency 3", 'concurrency 3; limits "large*" { concurrency 1 }')

    assert await sent_of(policy, *[("", "large-1")] * 2, ("", "small")) == (["large-1", "small"], 1)


async def test_aging() -> None:
    policy = CAP_1 + 'lane default { aging 1 every 1ms }\nrule urgent when model == "urgent" { priority 1 }'

    assert await order(policy, ("", "old"), ("", "urgent")) == ["old", "urgent"]


async def test_priorities() -> None:
    policy = CAP_1 + 'rule urgent when model == "urgent" { priority 5 }'

    assert await order(policy, ("", "plain"), ("", "plain"), ("", "urgent")) == ["urgent", "plain", "plain"]


async def test_fair_shares() -> None:
    policy = CAP_1 + "agent hog { }\nagent newcomer { }"

    assert (await order(policy, *[("hog", "hog")] * 4, ("newcomer", "newcomer")))[:2].count("newcomer") == 1


async def test_budgets() -> None:
    async with standing(CAP_3 + "budget b { requests 1/hour }") as place:
        answers = [await ask(place), await ask(place)]

    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].headers["x-hivemind-reason"] == "budget"
    assert len(place.provider.seen) == 1


async def test_rate_limits() -> None:
    async with standing(CAP_3.replace("}", "; limits { requests 2/min } }")) as place, trio.open_nursery() as callers:
        for _ in range(3):
            callers.start_soon(ask, place)
        await until(lambda: place.waiting + len(place.records) == 3)
        waiting = place.waiting
        callers.cancel_scope.cancel()

    assert (waiting, len(place.provider.seen)) == (1, 2)


OWN_LOGINS: Final = "hmp 1\nprovider claude { api anthropic; base env(UPSTREAM); concurrency 8 }\n"
"""Every caller brings a credential of its own."""


async def ask_as(login: str, place: Place, model: str = "claude-x") -> httpx2.Response:
    """One call with a credential of the caller's own."""
    async with httpx2.AsyncClient(timeout=None, verify=TLS) as client:
        body = {"model": model, "max_tokens": 50, "messages": messages()}
        return await client.post(f"{place.url}/v1/messages", json=body, headers={"x-api-key": login})


async def test_plans() -> None:
    with providing(PlanProvider(used={"5h": 0.93})) as url:
        async with standing(OWN_LOGINS, secrets={"UPSTREAM": url}) as place:
            answer = await ask_as("mine", place)

    assert answer.headers["x-hivemind-plan"].startswith("session 93% resets ")


async def test_plan_rules() -> None:
    with providing(PlanProvider(used={"7d": 0.93})) as url:
        policy = OWN_LOGINS + 'rule r when plan.week > 90% { deny "the week is nearly used" }'
        async with standing(policy, secrets={"UPSTREAM": url}) as place:
            answers = [await ask_as(login, place) for login in ("mine", "mine", "another")]

    assert [answer.status_code for answer in answers] == [200, 403, 200]


async def test_session_facts() -> None:
    policy = CAP_3 + 'rule long when session.turns >= 1 { deny "start a new session" }'
    jobs = ("one", "another", "one", "")
    async with standing(policy) as place:
        answers = [await ask(place, headers={"x-hivemind-job": job} if job else {}) for job in jobs]

    assert [answer.status_code for answer in answers] == [200, 200, 403, 200]


async def test_holds() -> None:
    async with standing(CAP_3 + 'rule later when model == "m" { hold }') as place, trio.open_nursery() as callers:
        callers.start_soon(ask, place)
        other = await ask(place, "another")
        await until(lambda: place.waiting == 1)
        sent = models(place)
        place.use(CAP_3)
        await until(lambda: len(place.records) == 2)

    assert (sent, models(place)) == (["another"], ["another", "m"])
    assert other.status_code == place.records[-1].status == 200
    assert place.records[-1].reason is Reason.HELD


async def test_plan_reserves() -> None:
    policy = OWN_LOGINS.replace("}", "; plan { reserve 30% of session for interactive } }")
    policy += 'lane interactive { }\nrule people when model == "claude-me" { lane interactive }'
    plan = PlanProvider(used={"5h": 0.71}, resets_s=60)
    with providing(plan) as url:
        async with standing(policy, secrets={"UPSTREAM": url}) as place, trio.open_nursery() as nursery:
            assert (await ask_as("mine", place)).status_code == 200
            nursery.start_soon(ask_as, "mine", place)
            await until(lambda: place.waiting + len(place.records) == 2)
            waiting = place.waiting
            with trio.fail_after(house.PATIENCE_S):
                answers = [await ask_as("mine", place, model="claude-me"), await ask_as("another", place)]
            nursery.cancel_scope.cancel()

    assert waiting == 1
    assert [answer.status_code for answer in answers] == [200, 200]


async def test_plan_refusals() -> None:
    plan = PlanProvider(spent={"mine"}, message="the provider's own words")
    with providing(plan) as url:
        async with standing(OWN_LOGINS, secrets={"UPSTREAM": url}) as place:
            answers = [await ask_as("mine", place) for _ in range(2)]

    assert plan.refused == 1
    assert [answer.status_code for answer in answers] == [429, 429]
    assert answers[1].headers["x-hivemind-reason"] == "provider-spent"
    assert answers[1].json()["error"]["message"] == "the provider's own words"


async def test_limits_of_accounts() -> None:
    plan = PlanProvider(limited={"a"})
    with providing(plan) as url:
        async with standing(OWN_LOGINS, secrets={"UPSTREAM": url}) as place, trio.open_nursery() as nursery:
            nursery.start_soon(ask_as, "a", place)
            await until(lambda: place.waiting == 1 and plan.refused == 1)
            with trio.fail_after(house.PATIENCE_S):
                answer = await ask_as("b", place)
            assert answer.status_code == 200
            nursery.cancel_scope.cancel()


async def test_limits_of_agents() -> None:
    policy = CAP_3 + "agent ci { limits { requests 2/2m } }\n"
    async with standing(policy) as place, trio.open_nursery() as callers:
        for _ in range(3):
            callers.start_soon(partial(ask, place, name="ci"))
        with trio.fail_after(house.PATIENCE_S):
            await until(lambda: len(place.provider.seen) == 2 and place.waiting == 1)
            other = await ask(place, name="other")
        callers.cancel_scope.cancel()

    assert other.status_code == 200


TWO_KEYS: Final = """
hmp 1
provider claude {
  api anthropic; base env(UPSTREAM); concurrency 8
  account prod  { key env(PROD) }
  account trial { key env(TRIAL) }
  spread first
}
"""


async def test_accounts() -> None:
    plan = PlanProvider(limited={"key-prod"}, limited_s=1)
    secrets = {"PROD": "key-prod", "TRIAL": "key-trial"}
    with providing(plan) as url:
        async with standing(TWO_KEYS, secrets={"UPSTREAM": url, **secrets}) as place:
            with trio.fail_after(house.PATIENCE_S):
                answers = [await ask_as("mine", place) for _ in range(2)]
                while_limited = list(plan.credentials)
                plan.limited.clear()
                while plan.credentials[-1] != "key-prod":
                    answers.append(await ask_as("mine", place))
            names = [record.provider for record in place.records]

    assert {answer.status_code for answer in answers} == {200}
    assert while_limited == ["key-prod", "key-trial", "key-trial"]
    assert set(plan.credentials) == {"key-prod", "key-trial"}
    assert names[:2] == ["claude.trial", "claude.trial"]
    assert names[-1] == "claude.prod"


async def test_keys_of_one_organisation() -> None:
    plan = PlanProvider()
    secrets = {"PROD": "key-prod", "TRIAL": "key-trial"}
    one = TWO_KEYS.replace("env(TRIAL)", "env(TRIAL); shares prod").replace("first", "even")
    with providing(plan) as url:
        async with standing(one, secrets={"UPSTREAM": url, **secrets}) as place, trio.open_nursery() as nursery:
            answers = [await ask_as("mine", place) for _ in range(3)]
            by_turns, names = list(plan.credentials), [record.sender for record in place.records]
            plan.limited |= {"key-prod", "key-trial"}
            nursery.start_soon(ask_as, "mine", place)
            await until(lambda: place.waiting == 1 and plan.refused == 1)
            for _ in range(2):
                nursery.start_soon(ask_as, "mine", place)
            await until(lambda: place.waiting == 3)
            refused = plan.refused
            nursery.cancel_scope.cancel()

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert by_turns == ["key-prod", "key-trial", "key-prod"]
    assert names == ["claude.prod", "claude.trial", "claude.prod"]
    assert refused == 1, "one refusal holds both keys"


async def test_retries() -> None:
    async with standing(CAP_1 + "retry default { attempts 3; backoff 1ms..1ms }") as place:
        place.provider.replies += [ScriptedReply(status=502), ScriptedReply(reset=True)]
        answer = await ask(place)

    assert (answer.status_code, len(place.provider.seen)) == (200, 3)


async def test_names_of_models() -> None:
    policy = CAP_1 + CLOSED + 'model "gpt-*" on sim { name "eu.gpt-v1:0" }\nmodel "gpt-5" on down { name "x" }\n'
    async with standing(policy + 'rule r when model == "gpt-5" { provider down }') as place:
        plain, named, fallen = [await ask(place, model) for model in ("m", "gpt-4.1", "gpt-5")]
        sent = models(place)

    assert sent == ["m", "eu.gpt-v1:0", "eu.gpt-v1:0"]
    assert [answer.headers.get("x-hivemind-model") for answer in (plain, named, fallen)] == [
        None, "eu.gpt-v1:0", "eu.gpt-v1:0"
    ]  # fmt: skip


async def test_client_addresses() -> None:
    inside = 'rule r when not client.address in ["10.0.0.0/8"] { deny "only from the network" }\n'
    answers = []
    for proxies in ("", 'server { forwarded-by ["127.0.0.1"] }\n'):
        async with standing(CAP_1 + proxies + inside) as place:
            for address in ("10.1.2.3", "192.0.2.7, 10.1.2.3", "10.1.2.3, 192.0.2.7"):
                answers.append(await ask(place, headers={"x-forwarded-for": address}))
            two = {"x-forwarded-for": "10.1.2.3, 192.0.2.7", "forwarded": "for=10.1.2.3"}
            answers.append(await ask(place, headers=two))

    assert [answer.status_code for answer in answers] == [403, 403, 403, 403, 200, 200, 403, 400]
    assert "`X-Forwarded-For` and `Forwarded` name different callers" in answers[-1].text


async def test_max_output() -> None:
    body = b'{"model": "claude-x", "max_tokens": 9000, "messages": [{"role": "user", "content": "hi"}] }'
    budget = b', "thinking": {"type": "enabled", "budget_tokens": 6000} }'
    sent = [body, body[:-2] + budget, body.replace(b"9000", b"10"), b'{"model": "m", "max_tokens": 9000}']
    policy = CAP_1 + 'rule short when model ~ "claude-*" { max-output 4k }'
    async with standing(policy) as place, httpx2.AsyncClient(timeout=None, verify=TLS) as client:
        answers = [await client.post(f"{place.url}/v1/messages", content=one) for one in sent]
        got = [seen.body for seen in place.provider.seen]

    assert got == [sent[0].replace(b"9000", b"4000"), sent[1].replace(b"9000", b"6001"), *sent[2:]]
    assert [answer.headers.get("x-hivemind-rewrote") for answer in answers] == [
        "max-output=4000", "max-output=6001", None, None
    ]  # fmt: skip


async def test_retries_by_error_type() -> None:
    error = b'{"error": {"type": "try_another_worker", "message": "worker gone"}}'
    policy = CAP_1 + 'retry default { attempts 3; backoff 1ms..1ms; on ["try_another_worker"] }'
    async with standing(policy) as place:
        place.provider.replies += [ScriptedReply(status=409, body=error), ScriptedReply(status=409, body=error)]
        answer = await ask(place)
        place.provider.replies.append(ScriptedReply(status=503))
        other = await ask(place)

    assert (answer.status_code, other.status_code, len(place.provider.seen)) == (200, 503, 4)


async def test_circuit_breaker() -> None:
    policy = CAP_1.replace("}", "; breaker trip 100% of 2 over 30s open 30s probes 1; open refuse }") + ONCE
    async with standing(policy) as place:
        place.provider.default = ScriptedReply(status=500)
        answers = [await ask(place) for _ in range(3)]

    assert len(place.provider.seen) == 2
    assert answers[2].headers["x-hivemind-reason"] == "breaker-open"


async def test_fallbacks() -> None:
    policy = CAP_1 + CLOSED + "rule there { provider down }"
    async with standing(policy) as place:
        answer = await ask(place)

    assert (answer.status_code, len(place.provider.seen)) == (200, 1)


async def test_keep_alives() -> None:
    policy = CAP_1 + "server { wait silent 10ms hold 60s }"
    async with standing(policy) as place, trio.open_nursery() as callers:
        gate = await queue(place, callers)
        call = {"model": "m", "messages": messages(), "stream": True}
        with trio.fail_after(house.PATIENCE_S):
            async with (
                httpx2.AsyncClient(timeout=None, verify=TLS) as client,
                client.stream("POST", f"{place.v1}/chat/completions", json=call) as answer,
            ):
                pieces = answer.aiter_bytes()
                first = await anext(pieces)
                waited = place.waiting
                gate.set()
                rest = [piece async for piece in pieces]

    assert (answer.status_code, waited) == (200, 1)
    assert first
    assert b"[DONE]" in b"".join(rest)


async def test_deadlines() -> None:
    policy = CAP_1 + 'lane only { weight 1; deadline 50ms }\nrule late when model == "late" { lane only }'
    async with standing(policy) as place, trio.open_nursery() as callers:
        gate = await queue(place, callers)
        with trio.fail_after(house.PATIENCE_S):
            answer = await ask(place, "late")
            assert answer.headers["x-hivemind-reason"] == "deadline"
        gate.set()

    assert len(place.provider.seen) == 1


async def test_bounded_queues() -> None:
    policy = CAP_1 + "lane only { weight 1; queue 2 }\nrule all { lane only }"
    async with standing(policy) as place, trio.open_nursery() as callers:
        gate = await queue(place, callers, ("", "m"), ("", "m"))
        with trio.fail_after(house.PATIENCE_S):
            answer = await ask(place)
            assert (answer.status_code, answer.headers["x-hivemind-reason"]) == (429, "queue-full")
        gate.set()

    assert len(place.provider.seen) == 3


async def test_adaptive_concurrency() -> None:
    policy = CAP_1.replace("concurrency 1", "concurrency 1..16 start 16") + RETRY
    slow = attrs.evolve(INSTANT, latency_mean_ns=20_000_000, concurrency=2)
    async with standing(policy, traits=slow) as place:
        limits = []

        async def ask_and_look() -> None:
            await ask(place)
            (pool,) = place.house.engine.snapshot().pools.values()
            limits.append(pool.limit)

        async with trio.open_nursery() as callers:
            for _ in range(40):
                callers.start_soon(ask_and_look)

    assert len(limits) == 40
    assert min(limits) < 16, "it may be back at 16 at the end"


async def test_keys() -> None:
    policy = CAP_1.replace("}", "; key env(KEY) }")
    async with standing(policy, secrets={"KEY": "the-provider-s"}) as place:
        answer = await ask(place, headers={"authorization": "Bearer the-agent-s"})

    assert answer.status_code == 200
    assert place.sent()[b"authorization"] == b"Bearer the-provider-s"


async def test_tokens_of_agents() -> None:
    policy = CAP_1.replace("}", "; key env(KEY) }") + "server { unknown-agent deny }\nagent ci { token env(CI) }"
    async with standing(policy, secrets={"KEY": "the-provider-s", "CI": "the-agent-s"}) as place:
        answers = [await ask(place, headers={"authorization": f"Bearer {word}"}) for word in ("the-agent-s", "guess")]

    assert [answer.status_code for answer in answers] == [200, 401]
    assert len(place.provider.seen) == 1


async def test_rules() -> None:
    policy = CAP_1 + 'rule cheaper when model == "dear" { model "cheap" }\nrule never when model == "bad" { deny "no" }'
    async with standing(policy) as place:
        answers = [await ask(place, model) for model in ("dear", "bad")]

    assert [answer.status_code for answer in answers] == [200, 403]
    assert models(place) == ["cheap"]


async def test_reload() -> None:
    async with standing(CAP_1) as place, trio.open_nursery() as callers:
        gate = trio.Event()
        place.provider.default = ScriptedReply(hold=gate)
        for _ in range(3):
            callers.start_soon(ask, place)
        await until(lambda: place.waiting == 2)
        place.use(CAP_3)
        with trio.fail_after(house.PATIENCE_S):
            await until(lambda: place.waiting == 0)
        waiting = place.waiting
        gate.set()

    assert waiting == 0


def test_each_feature_can_be_unplugged() -> None:
    assert {f"test_{feature}" for feature in unplug.FEATURES} == {
        name for name, test in globals().items() if name.startswith("test_") and iscoroutinefunction(test)
    }
    for parts in unplug.FEATURES.values():
        assert parts
        assert all(callable(getattr(owner, name)) for owner, name, _ in parts)
