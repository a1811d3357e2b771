"""A call that an operator lets through: the proxy, its limiters and the provider."""

from __future__ import annotations

from pathlib import Path

import attrs
import httpx2
import pytest
import trio

from hivemind_trio.admin import OPERATIONS, OperationFailed, ProblemKind
from hivemind_trio.admin.show import OneCall, WhichCalls
from hivemind_trio.admin.views import CallState, CallView
from hivemind_trio.demo import ScriptedReply
from tests.admin.test_policy import operated, read
from tests.e2e.house import PATIENCE_S, Place, standing, until

POLICY = """
hmp 1
provider anthropic {{ base env(UPSTREAM); concurrency 2 }}
lane default {{ {lane} }}
"""

BODY = {"model": "claude-x", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}

pytestmark = pytest.mark.slow


async def asking(place: Place, nursery: trio.Nursery, count: int, answers: list[int]) -> None:
    """Send calls, one after the other, that the provider does not answer yet."""

    async def one() -> None:
        async with httpx2.AsyncClient(base_url=place.url, timeout=PATIENCE_S) as client:
            answers.append((await client.post("/v1/messages", json=BODY)).status_code)

    for _ in range(count):
        before = place.waiting + place.inflight
        nursery.start_soon(one)
        await until(lambda before=before: place.waiting + place.inflight > before)  # type: ignore[misc]


async def test_it_goes_beyond_the_lane_and_never_beyond_the_provider(tmp_path: Path) -> None:
    policy, answers, noted = POLICY.format(lane="max 1"), list[int](), list[tuple[str, ...]]()
    loaded, gate = read(tmp_path, policy), trio.Event()
    async with standing(policy) as place, trio.open_nursery() as nursery:
        proxy = attrs.evolve(operated(place, loaded, loaded), note=lambda *what: noted.append(what))
        let = OPERATIONS["let_through"].run

        def waiting() -> list[CallView]:
            found = OPERATIONS["calls"].run(proxy, WhichCalls(state=CallState.WAITING)).calls
            return sorted(found, key=lambda one: -one.age_s)

        place.provider.default = ScriptedReply(hold=gate)
        await asking(place, nursery, 4, answers)
        assert (place.inflight, place.waiting) == (1, 3)
        first, second, third = waiting()
        (row,) = (await OPERATIONS["queue"].run(proxy, OPERATIONS["queue"].arguments())).queue
        (lane,) = (await OPERATIONS["status"].run(proxy, OPERATIONS["status"].arguments())).lanes
        assert [(one.reason, one.n) for one in lane.waits] == [("lane-max", 3)]
        assert row.text == "lane `default` was at its limit of 1 calls in flight at provider `anthropic`"

        assert let(proxy, OneCall(third.id), "me").state is CallState.INFLIGHT
        assert place.inflight == 2
        assert let(proxy, OneCall(second.id), "me").state is CallState.WAITING  # the provider is full
        assert [(one.id, one.let_through) for one in waiting()] == [(first.id, False), (second.id, True)]
        explained = await OPERATIONS["explain"].run(proxy, OneCall(second.id))
        said = "an operator lets it through: it goes as soon as provider `anthropic` has room; "
        assert explained.text.startswith(said)
        assert ("let-through", "operator") in [(one.setting, one.by) for one in explained.decided]
        other = await OPERATIONS["explain"].run(proxy, OneCall(first.id))
        assert "operator" not in other.text
        assert "let-through" not in [one.setting for one in other.decided]
        with pytest.raises(OperationFailed, match="does not wait any more") as failed:
            let(proxy, OneCall(third.id), "me")
        assert failed.value.kind is ProblemKind.CONFLICT
        assert noted[0] == ("let through", third.id, "me", "it waited for lane-max")
        gate.set()
        await until(lambda: len(answers) == 4)
    assert answers == [200] * 4


async def test_a_budget_is_not_overridden(tmp_path: Path) -> None:
    policy = POLICY.format(lane="max 2") + "budget small { requests 1/day; at 100% { hold } }\n"
    answers: list[int] = []
    loaded = read(tmp_path, policy)
    async with standing(policy) as place, trio.open_nursery() as nursery:
        proxy = operated(place, loaded, loaded)
        await asking(place, nursery, 1, answers)
        await until(lambda: answers == [200])
        await asking(place, nursery, 1, answers)
        (held,) = OPERATIONS["calls"].run(proxy, WhichCalls(state=CallState.WAITING)).calls

        with pytest.raises(OperationFailed, match="waits for a budget, which nothing overrides"):
            OPERATIONS["let_through"].run(proxy, OneCall(held.id), "me")
        nursery.cancel_scope.cancel()
