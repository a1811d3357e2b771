"""Simulated tests of a policy: what can be expected of a run, and what is said when it is not so."""

from __future__ import annotations

import re
from itertools import count
from typing import Final

import pytest

from hivemind_trio.policy import Checked, MemoryFiles, PolicyTest, RanTest, Run, Severity, check
from hivemind_trio.policy_tests import rehearse, runner, stage
from hivemind_trio.sim import Bound, World

HEAD: Final = """
provider anthropic { concurrency 2; limits { requests 600/min }; breaker trip 50% of 5 over 30s open 5s }
provider openai { concurrency 4; serves ["gpt-*"]; retry never }
retry never { attempts 1 }
model "claude-haiku-*" { price input $1/Mtok output $5/Mtok }
lane people { weight 4; reserve 1 }
lane others { queue 5 }
agent human { token env(HUMAN); lane people }
agent script when header.x-job != "" { lane others }
budget all { cost $50/day }
rule stop when model ~ "claude-opus-*" { deny "no" }
rule night when hour in 22..23 { deny "closed" }
rule noon when header.x-fast == "noon" and time in 12:00..12:59 { hold }
rule by-header when header.x-fast == "yes" { provider openai }
rule streams when stream { lane people }
"""

SLOW: Final = "upstream anthropic { latency 2s..2s }\nupstream openai { latency 1s..1s }\n"


def compiled(test: str) -> tuple[Checked, PolicyTest]:
    checked = check("team.hmp", MemoryFiles({"team.hmp": f'{HEAD}test "t" {{\n{test}\n}}\n'}))
    assert checked.program is not None, [one for one in checked.diagnostics if one.severity is Severity.ERROR]
    return checked, checked.tests[0]


def came_of(test: str) -> RanTest:
    return rehearse(*compiled(test))


RUNS: Final = {
    "no call waits where there is room": (
        'load w { agent human; model "claude-haiku-4-5"; arrive 10/min }', "w.wait.p50 == 0s and w.wait.max <= 2s",
    ),
    "calls wait where there is none": (
        'load w { agent human; model "claude-haiku-4-5"; arrive 80/min }', "w.wait.p50 > 2s",
    ),
    "as long as it is said to take, no longer": (
        'load w { agent human; model "gpt-5"; arrive 150/min }', "openai.concurrency.max == 4 and w.completed > 90%",
    ),
    "every call of a denied model": (
        'load w { model "claude-opus-4-1"; arrive 30/min }',
        "w.denied == 100% and w.failed == 100% and w.completed == 0%",
    ),
    "all at night": ("load w { arrive 30/min; hour 22 }", "w.denied == 100%"),
    "until the night, which begins soon": ("load w { arrive 30/min; time 21:59 }", "w.denied > 40% and w.denied < 60%"),
    "held until one": (
        'load w { header.x-fast "noon"; arrive 30/min; time 12:59 }',
        "w.held > 40% and w.held < 60% and w.denied == 0%",
    ),
    "none by day": ("load w { arrive 30/min; hour 9 }", "w.denied == 0% and w.failed == 0%"),
    "a queue that is full denies": (
        'load w { agent script; model "claude-haiku-4-5"; arrive 300/min }', "w.denied > 20% and w.failed >= 20%",
    ),
    "a header": (
        'load w { header.X-Fast "yes"; arrive 30/min }',
        "openai.concurrency.max > 0 and anthropic.concurrency.max == 0",
    ),
    "a status that the provider gives, tried again": (
        "load w { arrive 30/min }\nupstream anthropic { fail 529 20% }", "anthropic.status-529 > 0 and w.failed == 0%",
    ),
    "an error by its type, tried again": (
        'load w { arrive 30/min }\nupstream anthropic { fail "overloaded_error" 20% }',
        "anthropic.status-529 > 0 and w.failed == 0%",
    ),
    "a limit that no header tells of": (
        "load w { arrive 30/min }\nupstream anthropic { fail 429 20% }", "anthropic.status-429 > 0 and w.failed == 0%",
    ),
    "an error whose type no class names": (
        'load w { model "gpt-5"; arrive 60/min }\nupstream openai { fail "upstream_error" 50% }',
        "openai.status-502 > 5 and w.failed > 10%",
    ),
    "one that is not tried again": (
        'load w { model "gpt-5"; arrive 60/min }\nupstream openai { fail 503 50% }',
        "openai.status-503 > 5 and w.failed > 10% and openai.status-529 == 0",
    ),
    "connections that are reset are no status": (
        'load w { model "gpt-5"; arrive 60/min }\nupstream openai { fail reset 50% }',
        "openai.status-503 == 0 and w.failed > 10%",
    ),
    "an outage opens the breaker": (
        "load w { arrive 60/min }\nupstream anthropic { fail 529 100% from 20s to 60s }",
        "anthropic.breaker.opened >= 1",
    ),
    "which stays shut without one": ("load w { arrive 60/min }", "anthropic.breaker.opened == 0"),
    "beyond the run there is no outage": (
        "load w { arrive 60/min }\nupstream anthropic { fail 529 100% from 3m to 4m }", "anthropic.status-529 == 0",
    ),
    "money is what prices and tokens say": (
        # About 60 calls of 10k in and 1k out, $0.015 each.
        'load w { model "claude-haiku-4-5"; tokens.in 10k; tokens.out 1k; arrive 30/min }',
        "all.spent > $0.60 and all.spent < $1.20",
    ),
    "who has a reserve does not wait for a flood": (
        'load p { agent human; model "claude-haiku-4-5"; arrive 6/min }\n'
        'load f { agent script; model "claude-haiku-4-5"; arrive 120/min }',
        "p.wait.p95 <= 2s and f.wait.p95 > 2s and f.denied > 10%",
    ),
    "a plan is used as tokens say, and refuses what is beyond it": (
        # 60 calls of 10k in and about 300 out: 618k.
        'load w { agent human; model "claude-haiku-4-5"; tokens.in 10k; arrive 30/min }\n'
        "upstream anthropic { plan session tokens 2M used 50% resets 2h; plan week tokens 300k }",
        "anthropic.plan.session.max > 60% and anthropic.plan.session.max < 70% and anthropic.plan.week.max == 100% "
        "and w.failed > 30% and anthropic.status-429 >= 1",
    ),
    "what is left of a plan is of its resets": (
        'load w { agent human; model "claude-haiku-4-5"; tokens.in 10k; arrive 30/min }\n'
        "upstream anthropic { plan session tokens 1M every 30s }",
        "anthropic.plan.session.unused > 75% and anthropic.plan.session.unused < 100% and w.failed == 0%",
    ),
    "sessions of several calls grow": (
        'load w { agent human; model "claude-haiku-4-5"; tokens.in 1k; turns 5; grow 10k; arrive 12/min }\n'
        "upstream anthropic { latency 1s..1s; plan session tokens 10M }",
        # 105k tokens a session of five calls; one call of a session alone has 1k.
        "anthropic.plan.session.max > 15% and w.completed > 80%",
    ),
    "nodes share the slots, whatever becomes of one of them and of the store": (
        'load w { agent human; model "claude-haiku-4-5"; arrive 40/min }\n'
        "fault store from 20s to 60s\nfault node 2 from 70s to 90s\nfault link 1 from 100s\nrun 2m seed 6 nodes 2",
        "anthropic.concurrency.max == 2 and w.completed > 70% and w.failed < 10%",
    ),
    "where no node is up, calls fail": (
        'load w { model "gpt-5"; arrive 60/min }\nfault node 1 from 30s to 90s\nfault node 2 from 30s\nrun 2m nodes 2',
        "w.failed > 35% and w.failed < 65%",
    ),
    "streams": ("load w { stream; arrive 10/min }", "w.completed >= 80%"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("asks", "expected"), RUNS.values(), ids=RUNS)
def test_what_comes_of_a_run_holds_and_its_opposite_does_not(asks: str, expected: str) -> None:
    said = f"{SLOW if 'upstream' not in asks else ''}{asks}" + ("" if "\nrun" in asks else "\nrun 2m seed 3")
    checked, test = compiled(f"{said}\nexpect {expected}")

    assert rehearse(checked, test).diagnostics == ()
    opposite = came_of(f"{said}\nexpect not ({expected})")
    assert [one.code for one in opposite.diagnostics] == ["HM503"]


def test_a_failure_has_the_value_the_bound_and_the_seed() -> None:
    (found,) = came_of(
        'load w { model "claude-opus-4-1"; arrive 30/min }\nrun 1m seed 11\n'
        "expect w.completed == 0% and w.denied <= 2.5% and w.wait.p95 <= 2s"
    ).diagnostics

    assert found.severity is Severity.ERROR
    assert "seed 11" in found.message
    assert found.note.startswith("got w.denied 100%, not <= 2.5%")
    assert "completed" not in found.note
    assert found.help.startswith("`hivemind-trio simulate team.hmp --test ")


def test_a_test_of_an_included_file_is_run_with_what_includes_it() -> None:
    test = 'test "t" { load w { agent human; arrive 30/min }; run 1m; expect w.failed == 100% }\n'
    checked = check("team.hmp", MemoryFiles({"team.hmp": f'{HEAD}include "t.hmp"\n'.encode(), "t.hmp": test.encode()}))

    (found,) = rehearse(checked, checked.tests[0]).diagnostics

    assert found.help.startswith("`hivemind-trio simulate team.hmp --test ")


def test_a_failure_says_what_turned_calls_away_and_of_how_many() -> None:
    (found,) = came_of(
        'load w { model "claude-opus-4-1"; arrive 30/min }\nload x { arrive 1/min }\nrun 1m seed 11\n'
        "expect w.denied == 0% or w.failed == 0%"
    ).diagnostics

    denied = r"w.denied 100% \((\d+) x denied of \1 calls\)"
    failed = r"w.failed 100% \(\1 x rejected: denied of \1 calls\)"
    assert re.fullmatch(f"got {denied}; {failed}", found.note)


FLOOD: Final = 'load f { agent script; model "claude-haiku-4-5"; arrive 300/min }\nrun 2m seed 3\n'


def test_a_wait_of_a_load_that_was_mostly_rejected_is_warned_about() -> None:
    ran = came_of(f"{SLOW}{FLOOD}expect f.wait.p50 >= 0s\nexpect f.wait.p95 <= 1m")

    (found,) = ran.diagnostics
    assert (found.code, found.severity, ran.failed) == ("HM505", Severity.WARNING, False)
    served, lost = map(int, re.findall(r"(\d+) (?:calls were served|were rejected)", found.note))
    assert served < lost
    assert found.message == f"`f.wait.p50` covers only {100 * served / (served + lost):.3g}% of the calls of load `f`"


@pytest.mark.parametrize("more", ["f.denied <= 95%", "f.completed > 1%", "f.failed <= 95%"])
def test_a_wait_beside_which_the_lost_part_is_bounded_is_not(more: str) -> None:
    assert came_of(f"{SLOW}{FLOOD}expect f.wait.p95 <= 1m and {more}").diagnostics == ()


def test_a_rejected_call_is_no_wait_of_no_time() -> None:
    # Nine calls in ten are rejected at once; those that are served wait for up to five before them.
    ran = came_of(f"{SLOW}{FLOOD}expect f.wait.p50 <= 1s and f.denied > 50%")

    assert [one.code for one in ran.diagnostics] == ["HM503"]


def test_nothing_is_said_of_calls_that_never_came() -> None:
    found = came_of(
        "load w { arrive 1/day }\nrun 1m\nexpect w.failed == 0%\nexpect w.wait.max <= 1h\nexpect w.wait.max != 1h"
    ).diagnostics

    assert [one.note for one in found] == [
        "got w.failed is of no call, not == 0%",
        "got w.wait.max is of no call, not <= 3600s",
    ]


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    def digest(seed: int) -> str:
        checked, test = compiled(f"load w {{ arrive 60/min }}\nrun 1m seed {seed}\nexpect w.failed == 0%")
        assert checked.program is not None
        assert isinstance(test.asks, Run)
        return World(checked.program, stage(test.asks), test.asks.seed).run().digest

    assert digest(3) == digest(3)
    assert digest(3) != digest(4)


def test_a_run_that_takes_too_long_is_given_up_and_is_an_error() -> None:
    seconds = count(0.0, 40.0)
    checked, test = compiled("load w { agent human; arrive 1k/min }\nrun 3m\nexpect w.failed <= 100%")

    ran = rehearse(checked, test, clock=lambda: next(seconds))

    (found,) = ran.diagnostics
    assert (found.code, found.severity) == ("HM504", Severity.ERROR)
    assert ran.failed


def test_a_run_of_more_calls_than_there_is_time_for_is_given_up_before_they_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked, test = compiled("load w { arrive 6k/min }\nload x { arrive 1/min }\nrun 24h\nexpect w.failed <= 100%")
    monkeypatch.setattr(runner, "World", None)

    (found,) = rehearse(checked, test).diagnostics

    assert (found.code, found.note) == ("HM504", "it has about 8,641,440 calls")


@pytest.mark.slow
def test_how_far_it_is_is_told_from_the_beginning_to_the_end() -> None:
    shares: list[float] = []
    checked, test = compiled("load w { agent human; arrive 1k/min }\nrun 6m\nexpect w.failed <= 100%")

    ran = rehearse(checked, test, heard=shares.append)

    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1
    assert not ran.failed
    assert ran.seconds is not None


def test_the_rules_that_its_calls_meet_are_exercised() -> None:
    asks = 'load a { stream; arrive 6/min; hour 22 }\nload b { header.x-fast "yes"; arrive 6/min }'

    assert came_of(f"{asks}\nrun 10s\nexpect a.denied <= 100%").exercised == {"night", "by-header"}


def test_what_one_load_asks_for_is_not_what_another_gets() -> None:
    run = compiled(
        "load a { tokens.in 1k; tokens.out 100; arrive 30/min }\n"
        "load b { tokens.in 2k; tokens.out 3k; arrive 30/min }\nrun 2m seed 5\nexpect a.failed == 0%"
    )[1].asks
    assert isinstance(run, Run)

    first, second = stage(run).fleets

    assert [turn.ask.tokens_out for job in first.jobs(5) for turn in job.turns][:1] == [100]
    assert {turn.ask.tokens_max_out for job in second.jobs(5) for turn in job.turns} == {12_000}
    assert {turn.ask.tokens_in for job in second.jobs(5) for turn in job.turns} == {2_000}


ACCOUNTS: Final = """
provider anthropic {
  concurrency 4
  account prod { key env(A); for default }
  account batch { key env(B); for slow; concurrency 2 }
}
lane slow { }
agent bot { token env(C); lane slow }
test "t" {
  load people { model "claude-x"; arrive 30/min }
  load bots { agent bot; model "claude-x"; arrive 30/min }
"""


def of_accounts(text: str, declared: str = ACCOUNTS) -> tuple[Checked, PolicyTest]:
    checked = check("team.hmp", MemoryFiles({"team.hmp": f"{declared}{text}\n}}\n"}))
    assert checked.program is not None, checked.diagnostics
    return checked, checked.tests[0]


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        (
            "anthropic.batch { fail 502 100% from 1m to 2m }",
            "people.failed == 0% and anthropic.prod.status-502 == 0 and anthropic.batch.status-502 > 5 "
            "and anthropic.prod.breaker.opened == 0",
        ),
        (
            "anthropic { fail 502 100% from 1m to 2m }",
            "anthropic.prod.status-502 > 5 and anthropic.batch.status-502 > 5",
        ),
        (
            "anthropic.batch { latency 20s..20s }",
            "anthropic.batch.concurrency.max == 2 and anthropic.prod.concurrency.max > 2 and bots.wait.p95 > 1s",
        ),
        ("anthropic.prod { plan session tokens 10M }", "anthropic.prod.plan.session.max > 0%"),
        ("anthropic { plan session tokens 10M }", "anthropic.batch.plan.session.max > 0%"),
    ],
)
def test_an_account_behaves_and_is_measured_by_itself(upstream: str, expected: str) -> None:
    assert rehearse(*of_accounts(f"upstream {upstream}\nrun 3m seed 3\nexpect {expected}")).diagnostics == ()


def test_accounts_that_share_have_the_slots_of_one_in_a_run_too() -> None:
    declared = ACCOUNTS.replace("slow; concurrency 2", "slow; shares prod")
    text = "upstream anthropic.prod { latency 20s..20s }\nrun 90s seed 3\n"
    expected = "anthropic.prod.concurrency.max == 4 and people.wait.p95 > 1s and bots.wait.p95 > 1s"
    assert rehearse(*of_accounts(f"{text}expect {expected}", declared)).diagnostics == ()


def test_statuses_and_circuits_of_a_provider_are_the_sums_of_its_accounts() -> None:
    down = "upstream anthropic { fail 502 100% from 1m to 2m }"
    checked, test = of_accounts(f"{down}\nrun 3m seed 3\nexpect people.failed >= 0%")
    assert checked.program is not None
    assert isinstance(test.asks, Run)

    world = World(checked.program, stage(test.asks), 3, bound=Bound(chain_ns=0, concurrency_ns=0))
    found = runner.measured(world.run())

    for what in ("status-502", "breaker.opened"):
        parts = [found[f"anthropic.{account}.{what}"] for account in ("prod", "batch")]
        assert found[f"anthropic.{what}"] == sum(int(part) for part in parts) > max(int(part) for part in parts) > 0
