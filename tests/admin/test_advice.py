"""Advice on what to change, from a journal of the last hour."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs
import msgspec
import pytest
import trio

from hivemind_trio.admin import OPERATIONS, Facts, keep_advised
from hivemind_trio.admin.views import AdviceLaneView, AdviceState, AdviceView
from hivemind_trio.cli.control.queue import advice_text
from hivemind_trio.cli.control.words import span
from hivemind_trio.model import Api, Outcome, RecordedCall
from hivemind_trio.sim import LaneWait, World, parse_scenario
from hivemind_trio.store import open_journal, read_journal
from tests.admin.test_policy import operated, read
from tests.e2e.house import standing
from tests.store.written import CALL, MS, tell

POLICY: Final = 'hmp 1\nprovider anthropic { base "http://127.0.0.1:9"; concurrency 12 }\n'
SECOND: Final = 1_000_000_000
UNEXPLAINED: Final = "calls waited 17 s (p95), and no limit of the policy explains that"
PATIENCE_S: Final = 600
"""A study takes seconds of CPU in a process of low priority, which other tests starve: only what hangs is to fail."""

pytestmark = pytest.mark.slow


async def journal_of(path: Path, callers: int, waited_s: int = 0, *, refused: bool = False) -> None:
    """Write a journal of so many callers, each with a call at the same time.

    Args:
        waited_s: For its turn.
        refused: Each was refused once before.
    """
    request = attrs.evolve(CALL.request, apis=(Api.ANTHROPIC,), path="/v1/messages", headers={})

    def call(name: str) -> RecordedCall:
        waited_ns = waited_s * SECOND
        attempt = attrs.evolve(
            CALL.attempts[0], granted_ns=waited_ns, waited_ns=waited_ns, ended_ns=waited_ns + 7 * SECOND
        )
        before = attrs.evolve(attempt, granted_ns=0, waited_ns=0, ended_ns=MS, outcome=Outcome.BURST, status=429)
        attempts = (*(before,) * refused, attempt)
        return attrs.evolve(
            CALL, request=request, caller=name, again=name, attempts=attempts, ended_ns=attempt.ended_ns
        )

    async with open_journal(str(path), on_trouble=print) as journal:
        journal.began("0", "hash", 0)
        for number in range(callers):
            tell(journal, call(f"agent-{number}"), number + 1)


async def advised(
    folder: Path, policy: str, callers: int | None, waited_s: int = 0, *, refused: bool = False
) -> tuple[AdviceView, AdviceView]:
    """Return the first answer and the last one; `callers` None: without a journal, 0: with the file that is there."""
    path = folder / "team.journal"
    if callers:
        await journal_of(path, callers, waited_s, refused=refused)
    loaded = read(folder, policy)
    operation = OPERATIONS["advice"]
    async with standing(policy, patience_s=PATIENCE_S) as place, trio.open_nursery() as nursery:
        proxy = operated(place, loaded, loaded)
        journal = str(path) if callers is not None else None
        facts = Facts(version="0", pid=1, address=place.url, policy="team.hmp", journal=journal)
        proxy = attrs.evolve(proxy, facts=facts, wall_ns=time.time_ns)
        nursery.start_soon(keep_advised, proxy)
        first = last = operation.run(proxy, operation.arguments())
        while last.state is AdviceState.COMPUTING:
            await trio.sleep(0.05)
            last = operation.run(proxy, operation.arguments())
        nursery.cancel_scope.cancel()
    return first, last


async def test_the_limit_that_binds_is_said_in_a_sentence(tmp_path: Path) -> None:
    first, found = await advised(tmp_path, POLICY + "lane default { max 2 }\n", 12)

    assert (first.state, found.state) == (AdviceState.COMPUTING, AdviceState.READY)
    assert found.text == "1 limit, lifted alone, would have shortened waits"
    assert [one.text for one in found.advice] == [
        "with max 3 instead of 2 in lane default, waits p95 would have been 21 s instead of 35 s"
    ]
    assert (found.calls, found.tried, found.limits) == (12, 2, 2)
    assert [(one.lane, one.served) for one in found.lanes] == [("default", 12)]


async def test_where_the_provider_binds_its_concurrency_is_advised_on_condition(tmp_path: Path) -> None:
    _, found = await advised(tmp_path, POLICY.replace("concurrency 12", "concurrency 2"), 12)

    assert [one.text for one in found.advice] == [
        "with concurrency 3 instead of 2 at provider anthropic, waits p95 of lane default would have been "
        "21 s instead of 35 s, if anthropic accepts that"
    ]


async def test_no_limit_of_a_provider_that_refuses_calls_is_advised_to_be_raised(tmp_path: Path) -> None:
    _, found = await advised(tmp_path, POLICY.replace("concurrency 12", "concurrency 2"), 12, refused=True)

    assert found.advice == ()
    assert found.text.endswith(
        "no limit of provider anthropic is to be raised, which refused 12 of 24 attempts: declare its `limits` as its "
        "account has them, or take a second account, `fallback` or fewer agents"
    )


def waits(folder: Path, policy: str) -> LaneWait:
    """Return the waits of lane `default` when the calls of the journal come to this policy."""
    program = read(folder, policy).program
    scenario = parse_scenario("", name="hour", trace=read_journal(str(folder / "team.journal")))
    return LaneWait.of([World(program, scenario, seed).run().lanes["default"] for seed in (1, 2)])


@pytest.mark.parametrize(
    ("settings", "was", "becomes", "change"),
    [
        ("lane default { max 2 }", "max 2", "max 3", "max 3 instead of 2 in lane default"),
        ("lane default { max 25% }", "max 25%", "max 38%", "max 38% instead of 25% in lane default"),
        ("lane people { reserve 9 }", "reserve 9", "", "no reserve instead of 9 in lane people"),
        ("", "concurrency 12", "concurrency 18", "concurrency 18 instead of 12 at provider anthropic"),
        (
            "limits { requests 8/min }",
            "8/min",
            "12/min",
            "limits of 12 requests per minute instead of 8 requests per minute at provider anthropic",
        ),
    ],
)
async def test_a_policy_that_is_changed_as_advised_has_the_waits_that_were_foretold(
    settings: str, was: str, becomes: str, change: str, tmp_path: Path
) -> None:
    policy = f"{POLICY}{settings}\n" if "lane" in settings else POLICY.replace("12 }", f"12; {settings} }}")
    _, found = await advised(tmp_path, policy, 30)
    before, after = waits(tmp_path, policy), waits(tmp_path, policy.replace(was, becomes))

    (row,) = (one for one in found.advice if one.change == change)
    assert (row.before, row.after) == tuple(
        AdviceLaneView(
            lane="default", served=round(one.served), wait_p95_s=round(one.p95_ns / SECOND, 3),
            rejected=round(one.rejected),
        )
        for one in (before, after)
    )  # fmt: skip
    assert row.after != row.before == found.lanes[0]


@pytest.mark.parametrize(
    ("callers", "state", "said"),
    [
        (None, AdviceState.UNAVAILABLE, "there is no journal"),
        (3, AdviceState.UNAVAILABLE, "3 calls came in the last hour, too few to simulate"),
        (12, AdviceState.READY, "hardly a call waited: no limit needs to be lifted"),
    ],
)
async def test_where_there_is_nothing_to_advise_it_says_why(
    tmp_path: Path, callers: int | None, state: AdviceState, said: str
) -> None:
    _, found = await advised(tmp_path, POLICY, callers)

    assert (found.state, found.advice) == (state, ())
    assert said in found.text


@pytest.mark.parametrize(
    ("waited_s", "refused", "said"),
    [
        (17, True, f"{UNEXPLAINED}: anthropic refused 12 of 24 attempts"),
        (17, False, f"{UNEXPLAINED}; `hivemind-trio explain --slow` has the reasons"),
        (1, True, "hardly a call waited: no limit needs to be lifted"),
    ],
)
async def test_waits_that_the_simulation_does_not_have_are_not_denied(
    waited_s: int, refused: bool, said: str, tmp_path: Path
) -> None:
    _, found = await advised(tmp_path, POLICY, 12, waited_s, refused=refused)

    assert (found.text, found.waited_p95_s) == (said, float(waited_s))
    shown = advice_text(msgspec.to_builtins(found), datetime.now(UTC)).splitlines()
    assert shown[0] == said
    assert f"which waited {span(waited_s)} (p95)" in shown[2]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MODULE", "hivemind_trio.nothing", "its process ended with status 1: "),
        ("TIME_S", 0.0, "it took more than 0 s"),
    ],
)
async def test_a_process_that_fails_is_said(
    name: str, value: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"hivemind_trio.admin.forecasts.advice.{name}", value)
    _, found = await advised(tmp_path, POLICY, 12)

    assert found.state is AdviceState.UNAVAILABLE
    assert f"the last hour cannot be simulated: {said}" in found.text


async def test_a_damaged_journal_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "team.journal").write_text("no journal")
    _, found = await advised(tmp_path, POLICY, 0)

    assert found.state is AdviceState.UNAVAILABLE
    assert "not a journal" in found.text
