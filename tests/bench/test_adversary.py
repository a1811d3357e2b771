"""The adversary bench: its results are deterministic, and its references notice a provider that gives too much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from bench import adversary
from bench.adversaries import provider as provider
from bench.adversaries.draw import NAMED, held_out, named, undeclared, values_of
from bench.adversaries.provider import SECOND_NS
from bench.adversaries.run import Drawing, Way, World
from bench.adversaries.sockets import over_sockets
from bench.simulated.worlds import compiled
from hivemind_trio.model import Api
from hivemind_trio.scheduler import AttemptEnded, CallId, Command, Event, Grant, Scheduler


@pytest.mark.slow
def test_equal_seeds_make_equal_decisions() -> None:
    names = ["3", "5", "lie-60"]

    first, second = (adversary.digest(adversary.outcomes(names, list(Way), 1)) for _ in range(2))

    assert first == second


def test_a_parameter_drawn_anew_makes_another_drawing() -> None:
    found = [adversary.digest(adversary.outcomes([name], [Way.CODE], 1)) for name in ("3", "3,requests=5")]

    assert found[0] != found[1]


def test_chance_is_held_against_the_run_of_the_tables() -> None:
    found = adversary.repeated(("3", 2))

    assert found is not None
    assert found.makespans_ns[0] == adversary.outcome("3", [Way.OURS]).results[Way.OURS].makespan_ns
    assert len(set(found.makespans_ns)) == 3, "the others have met other times on the network"


@pytest.mark.parametrize(("makespans", "one", "best"), [((110, 100, 99), False, True), ((111, 100, 120), True, True)])
def test_a_further_run_is_better_as_a_simpler_way_is(makespans: tuple[int, ...], one: bool, best: bool) -> None:
    found = adversary.Repeated(False, makespans)

    assert (found.beaten(1), found.beaten(2)) == (one, best)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rpm-50", "rolling-60", "bucket-4", "cap-10", "1201"])
def test_nothing_beats_the_bound(name: str) -> None:
    one = adversary.outcome(name, list(Way))

    assert not one.infeasible
    assert one.bound_ns <= one.order_ns
    assert one.impossible == []


def test_a_window_that_gives_twice_beats_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = provider.Count.room
    monkeypatch.setattr(provider.Count, "room", lambda count, now_ns: honest(count, now_ns) + count.quota.limit)

    one = adversary.outcome("rpm-50", [Way.FIXED])

    assert one.impossible == ["fixed", "order"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2", "3", "6", "8", "9", "19", "24", "44", "59", "72"])
def test_no_agent_dies_and_nothing_stands_still(name: str) -> None:
    one = adversary.outcome(name, adversary.OWN)

    assert not one.infeasible
    for result in one.results.values():
        assert (result.dead, result.died_of, result.crashed) == (0, {}, "")
        assert result.standstill_ns <= 20 * SECOND_NS


@pytest.mark.slow
def test_to_ask_more_often_does_not_take_from_other_users_of_a_key() -> None:
    one = adversary.outcome("half-others", [Way.AIMD])

    assert one.results[Way.AIMD].refused["quota requests"] > 100
    assert one.over_order(Way.AIMD) >= 0.95


def test_an_exception_of_the_scheduler_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Scheduler.handle

    def crashes(scheduler: Scheduler, event: Event, now_ns: int) -> list[Command]:
        assert now_ns < 2 * SECOND_NS, "the sky has fallen"
        return honest(scheduler, event, now_ns)

    monkeypatch.setattr(Scheduler, "handle", crashes)

    one = adversary.outcome("bucket-4", [Way.OURS])

    result = one.results[Way.OURS]
    assert "the sky has fallen" in result.crashed
    assert result.died_of == {"crash": 30}
    assert [each.met for each in adversary.targets([one], Way.OURS)[:2]] == [False, False]


@pytest.mark.slow
def test_the_hold_out_is_about_a_tenth_and_both_halves_are_drawn_alike() -> None:
    held = [name for name in map(str, range(1_000)) if held_out(int(name), values_of(name))]

    assert 100 <= len(held) <= 200
    assert {int(name) % 10 for name in held} == set(range(10))


def test_a_call_that_hangs_is_a_standstill_of_nobody_and_a_hold_is_one() -> None:
    """Standstills are counted while calls wait and nothing is in flight, not while something is."""
    hold, none = (adversary.outcome(name, [Way.FIXED]).results[Way.FIXED] for name in ("lie-60", "gpu"))

    assert hold.standstill_ns > 50 * SECOND_NS
    assert none.standstill_ns == 0


@pytest.mark.slow
def test_an_event_log_tells_why_the_provider_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert adversary.main(["--trace", "bucket-4"]) == 0

    said = capsys.readouterr().out
    assert "refused 429 (truth: quota requests) -> quota" in said
    assert "makespan " in said


@pytest.mark.slow
def test_tables_pictures_and_figures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    md, data, pictures = tmp_path / "a.md", tmp_path / "a.json", tmp_path / "svg"

    code = adversary.main(
        f"--drawings 3 --seed 4 --way fixed,ours --worst 1 --md {md} --json {data} --svg {pictures}".split()
    )

    assert code == 0
    assert md.read_text("utf-8") == capsys.readouterr().out
    assert "## Targets" in md.read_text("utf-8")
    (picture,) = pictures.iterdir()
    assert picture.read_text("utf-8").startswith("<svg")


@pytest.mark.parametrize("arguments", [["--only", "strange"], ["--named", "strange"], ["--trace", "5,strange=3"]])
def test_an_unknown_drawing_is_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        adversary.main(arguments)

    assert "strange" in capsys.readouterr().err


@pytest.mark.slow
def test_scenarios_are_feasible() -> None:
    for name in NAMED:
        assert not adversary.outcome(name, []).infeasible, name


def small(**traits: Any) -> Drawing:
    """Four agents, two turns each, in a tenth of a second."""
    whole = NAMED["cap-10"]
    times: dict[str, Any] = {"first_ns": SECOND_NS // 20, "token_ns": 100_000, "rtt_ns": 1_000_000}
    quick = attrs.evolve(whole.traits, **{"caps": ()} | times | traits)
    jobs = tuple(attrs.evolve(job, turns=job.turns[:2]) for job in whole.jobs[:4])
    return attrs.evolve(whole, name="small", traits=quick, jobs=jobs)


@pytest.mark.slow
@pytest.mark.parametrize("api", [Api.ANTHROPIC, Api.OPENAI])
@pytest.mark.parametrize("way", [Way.CODE, Way.OURS])
def test_over_sockets_the_same_provider_serves_streams(way: Way, api: Api) -> None:
    real = trio.run(over_sockets, small(api=api), way, 60.0)

    assert (real.turns, real.dead, real.attempts) == (8, 0, 8)


@pytest.mark.slow
def test_over_sockets_everything_fails_that_fails_in_virtual_time() -> None:
    fates = provider.Fates(reset=0.2, error_first=0.1, error_started=0.1, error_mid=0.1, no_end=0.1)
    drawing = small(fates=fates, caps=((0, 3),), full=provider.Full.OVERLOADED)

    real = trio.run(over_sockets, drawing, Way.CODE, 120.0)

    assert (real.turns, real.dead) == (8, 0)
    assert real.attempts > 8


def test_a_stream_that_waits_gets_its_200_and_the_scheduler_is_told_so() -> None:
    headed: dict[bool, int] = {True: 0, False: 0}
    waited: dict[CallId, int] = {}

    def observe(now_ns: int, event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, AttemptEnded) and (waited_ns := waited.pop(event.call_id, None)) is not None:
            headed[event.ended.headed] += 1
            assert event.ended.headed is (waited_ns >= 15 * SECOND_NS)
        waited.update({one.call_id: one.waited_ns for one in commands if isinstance(one, Grant) and one.attempt == 1})

    drawing = NAMED["rpm-50-resets"]
    World(drawing, Way.OURS, undeclared(drawing), observe=observe).run(600 * SECOND_NS)

    assert headed[True] > 20
    assert headed[False] > 20


@pytest.mark.parametrize(("wait", "is_behind"), [("silent 1s hold 2s", True), ("silent 3s hold 0s", False)])
def test_an_error_behind_the_200_of_the_proxy_breaks_the_stream(wait: str, is_behind: bool) -> None:
    base = 'api anthropic; base "http://there"; concurrency 1'
    program = compiled(f"server {{ wait {wait} }}\nprovider p {{ {base} }}")
    lines: list[str] = []

    result = World(small(first_ns=4 * SECOND_NS), Way.OURS, program, told=lines.append).run(600 * SECOND_NS)

    assert any("held too long" in line for line in lines)
    assert any("gets its 200" in line for line in lines) is is_behind
    assert (result.behind > 0) is is_behind


def test_keys_of_one_account_do_not_starve_each_other() -> None:
    one = adversary.outcome("keys-of-one", [Way.OURS])

    result = one.results[Way.OURS]
    assert (result.dead, result.crashed) == (0, "")
    assert result.makespan_ns < 2 * one.order_ns
    assert result.wasted < 1


def test_a_drawing_with_keys_of_its_agents_own_is_the_same_but_for_them() -> None:
    shared, own = named("24"), named("24,keys=own")

    assert (shared.own_keys, own.own_keys) == (False, True)
    assert (own.traits, own.jobs, own.patience_ns) == (shared.traits, shared.jobs, shared.patience_ns)
    assert held_out(7, values_of("7,keys=own"))
