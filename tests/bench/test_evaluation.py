"""The evaluation and the comparison with sockets still run, and write what they say they do."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from bench import evaluation, fidelity
from bench.simulated import simulated
from bench.simulated.ablation import Switches, ablated, of_regimes
from bench.simulated.grid import cells, grid
from bench.simulated.simulated import Case, simulate
from bench.simulated.worlds import REGIMES, compiled, hinted, own_policy, paper, shipped, smaller
from hivemind_trio.policy import Objective, Program
from hivemind_trio.scheduler import ALL_PARTS
from hivemind_trio.sim import Bound, Scenario, Way, World, bound_of

MINUTE = 60 * 10**9


@pytest.mark.slow
@pytest.mark.parametrize("part", evaluation.PARTS)
def test_each_part_writes_its_table_and_its_figures(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep"

    assert evaluation.main(["--smoke", "--only", part, "--out", str(out), "--plots", str(tmp_path), "--jobs", "1"]) == 0

    said, md = json.loads((out / f"{part}.json").read_text()), (out / f"{part}.md").read_text()
    rows = said["tables"][0]["rows"]
    assert rows
    assert all(len(row["seeds"]) == 1 and all(row["digests"]) for row in rows)
    assert all(row["makespan / bound"] is None or row["makespan / bound"][0] >= 1 for row in rows)
    assert said["made"]["seeds"] == "1 to 1"
    assert "state" not in said["made"]
    assert md.split("\n\n", 2)[2].strip() in capsys.readouterr().out
    assert [line.count(" | ") for line in md.splitlines() if line.startswith("| ")] != []
    assert all(path.read_text().startswith("<svg") for path in tmp_path.glob("*.svg"))
    assert list(tmp_path.glob("*.svg")) or part not in ("paper", "regimes")


@pytest.mark.slow
def test_several_processes_find_what_one_does(tmp_path: Path) -> None:
    told = []
    for jobs in ("1", "2"):
        data = tmp_path / f"{jobs}.json"
        assert evaluation.main(["--smoke", "--only", "agentrm", "--jobs", jobs, "--json", str(data)]) == 0
        rows = json.loads(data.read_text())["tables"][0]["rows"]
        told.append([{key: value for key, value in row.items() if not key.startswith("CPU")} for row in rows])

    assert told[0] == told[1]


def interrupt_after(tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    perform = simulated.perform
    done: list[int] = []

    def interrupted(place: int) -> object:
        if len(done) == tasks:
            raise KeyboardInterrupt
        done.append(place)
        return perform(place)

    monkeypatch.setattr(simulated, "perform", interrupted)


def test_what_is_interrupted_leaves_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(2, monkeypatch)

    assert evaluation.main(["--smoke", "--jobs", "1", "--only", "agentrm,grid", "--out", str(tmp_path)]) == 130

    said = json.loads((tmp_path / "agentrm.json").read_text())
    assert said["made"]["state"] == "stopped early"
    assert {row["scenario"] for row in said["tables"][0]["rows"]} == {"normal", "high-load"}
    assert not (tmp_path / "grid.json").exists()


def test_what_is_stopped_has_as_many_seeds_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(3, monkeypatch)
    works = [smaller(each, 2, 2) for each in paper()[:3]]
    cases = [Case(key=(each.name,), scenario=each, program=own_policy(each)) for each in works]

    found, whole = simulate(cases, [1, 2, 3], jobs=1, what="", keep=lambda _: None)

    assert not whole
    assert [[run.seed for run in found.of(each.name)] for each in works] == [[1], [1], [1]]


@pytest.mark.slow
def test_when_time_is_up_it_stops_and_says_so(tmp_path: Path) -> None:
    arguments = ["--only", "regimes", "--regimes", "oversized", "--seeds", "50", "--jobs", "1", "--out", str(tmp_path)]

    assert evaluation.main([*arguments, "--minutes", "0"]) == 0

    said = json.loads((tmp_path / "regimes.json").read_text())
    assert said["made"]["state"] == "stopped early: 1 of 50 seeds"
    assert [row["seeds"] for row in said["tables"][0]["rows"]] == [[1]] * 6


def test_a_run_that_beats_its_bound_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def wrong(program: Program, scenario: Scenario, seed: int) -> Bound:
        return attrs.evolve(bound_of(program, scenario, seed), chain_ns=10**15)

    monkeypatch.setattr(simulated, "bound_of", wrong)

    assert evaluation.main(["--smoke", "--jobs", "1", "--only", "regimes", "--regimes", "storm"]) == 1
    assert "the bound is wrong: storm, the proxy, seed 1: 0.0" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "what"), [("--only", "part"), ("--regimes", "regime")])
def test_what_there_is_not_is_an_error(option: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        evaluation.main([option, "strom"])

    assert f"there is no {what} `strom`" in capsys.readouterr().err


@pytest.mark.slow
def test_both_worlds_do_the_same_work(tmp_path: Path) -> None:
    data = tmp_path / "out.json"

    assert fidelity.main(["--smoke", "--json", str(data)]) == 0

    _, times, _, took = json.loads(data.read_text())["tables"]
    assert [row["way"] for row in times["rows"]] == [str(way) for way in Way]
    for row in times["rows"]:
        (real,) = row["real"]
        assert row["simulated"]["turns_done"] == row["simulated_untold"]["turns_done"] == real["turns_done"] == 9
        assert row["simulated"]["tokens"] == real["tokens"]
        assert row["simulated"]["cost_microusd"] == real["cost_microusd"] > 0
        assert row["simulated"]["seconds"] > row["simulated_untold"]["seconds"]
    direct, proxied = took["rows"]
    assert direct["proxy"] == {"call_ns": 0, "first_ns": 0, "event_ns": 0}
    assert min(proxied["proxy"]["call_ns"], proxied["others"]["call_ns"], direct["others"]["call_ns"]) > 0


SECONDS = fidelity.Quantity("wait, s", lambda one: one.seconds, 1)
COUNT = fidelity.Quantity("dead", lambda one: one.dead, 0, False)


@pytest.mark.parametrize(
    ("quantity", "simulated", "real", "near", "steady", "cell"),
    [
        (SECONDS, 10.5, [9.0, 10.0, 10.4], True, True, "10.5 / 10.0 (9.0 to 10.4) +5.0 %"),
        (SECONDS, 12.0, [9.0, 10.0, 10.4], False, True, "12.0 / 10.0 (9.0 to 10.4) +20.0 %"),
        (SECONDS, 13.0, [9.0, 10.0, 14.0], True, False, "13.0 / 10.0 (9.0 to 14.0) +30.0 %"),
        (SECONDS, 0.001, [0.015, 0.01], True, True, "0.0 / 0.0"),
        (COUNT, 1, [0, 0, 0], False, True, "1 / 0"),
        (COUNT, 8, [10, 10, 8], True, False, "8 / 10 (8 to 10) -20.0 %"),
    ],
)
def test_near_is_a_tenth_or_as_near_as_sockets_are_to_themselves(
    quantity: fidelity.Quantity, simulated: float, real: list[float], near: bool, steady: bool, cell: str
) -> None:
    assert quantity.near(simulated, real) is near
    assert quantity.steady(real) is steady
    assert quantity.cell(simulated, real) == cell


@pytest.mark.slow
def test_scenarios_run_over_sockets_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluation.main(["--real", "--smoke"]) == 0

    rows = capsys.readouterr().out
    assert "| micro-5 | direct | 0 |" in rows
    assert "| micro-5 | proxy | 0 |" in rows


def test_a_name_that_cannot_be_run_over_sockets_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        evaluation.main(["--real", "--only", "fleet"])

    assert "scenario `fleet` has no policy" in capsys.readouterr().err


@pytest.mark.parametrize("switch", Switches.names())
def test_each_switch_of_the_ablation_makes_another_scheduler(switch: str) -> None:
    full, off = Switches(), Switches(**{switch: False})

    for scenario in (shipped("replay-11"), *of_regimes()):
        policies = [compiled(ablated(scenario, on)).providers["simulated"] for on in (full, off)]
        undeclared = switch == "quotas" and "limits" not in (scenario.policy or "")
        assert (policies[0] != policies[1]) is (switch in Switches.settings() or undeclared)
    assert full.parts == ALL_PARTS
    assert (off.parts != ALL_PARTS) is (switch not in Switches.settings())


def test_the_variants_are_all_but_one_and_one_alone() -> None:
    names = Switches.names()
    variants = Switches.variants(names)

    on = {variant: [name for name in names if getattr(switches, name)] for variant, switches in variants.items()}
    assert (on["full"], on["nothing"]) == (names, [])
    for name in names:
        assert on[f"{name} alone"] == [name]
        assert sorted([*on[f"without {name}"], name]) == sorted(names)


@pytest.mark.parametrize("name", REGIMES)
def test_hints_are_told_and_heeded(name: str) -> None:
    scenario = shipped(name)

    for says, program in hinted(scenario).values():
        assert all(fleet.says_remaining is not None for fleet in says.fleets)
        assert [provider.objective for provider in program.providers.values()] == [Objective.MAKESPAN]


@pytest.mark.slow
def test_with_hints_nobody_is_sent_away_where_a_quota_binds() -> None:
    for says, program in hinted(shipped("input-binds")).values():
        figures = World(program, says, seed=1).run()

        assert (figures.dead, dict(figures.refused)) == (0, {})


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 8])
def test_what_the_provider_fails_costs_no_window(seed: int) -> None:
    stress = shipped("stress")

    figures = World(own_policy(stress), stress, seed=seed).run()

    # 200 turns are ten windows of 20. Some 15 % more attempts fail, and the provider does not count them.
    assert figures.attempts > 220
    assert figures.dead == 0
    assert figures.makespan_ns < 10 * MINUTE


def test_the_grid_has_what_was_asked_for() -> None:
    there = list(cells())

    assert len({cell.name for cell in there}) == len(there) == 5 * 5 * 3 * 2 - 3 * 2, "Azure limits no output"
    for cell in there:
        scenario, program = grid(cell)
        (upstream,), (provider,) = scenario.upstreams, program.providers.values()
        group = next((group for group in provider.groups if group.glob is None), None)
        declared = {quota.dimension.name: quota.amount for quota in group.quotas} if group is not None else {}
        true = {dimension.name: quota.limit for dimension, quota in upstream.traits.quotas.items()}
        times = {"right": 1.0, "wrong": 1.5, "nothing": 0.0}[cell.declared]
        assert declared == {name: int(times * limit) for name, limit in true.items() if times}
        assert upstream.traits.refusals_count is cell.charged
        assert upstream.random_phase is (cell.truth in ("fixed", "azure"))


def test_the_variants_stream_and_reset() -> None:
    named = {each.name: each for each in paper()}

    assert len(named) == 7 + 2 + 7
    assert named["stress, real resets"].upstreams[0].traits.resets == 0.05
    assert all(fleet.stream == 1.0 for fleet in named["replay-11, real resets, streaming"].fleets)


def test_what_meets_no_limit_is_not_run_again_for_how_refusals_are_charged() -> None:
    """And it would have come to the same."""
    for binds, declared, limited in [("mixed", "right", False), ("requests", "wrong", True)]:
        pair = [cell for cell in cells() if cell[:3] == (binds, "gcra", declared)]
        worlds = [(cell.name, smaller(grid(cell)[0], 40, 2), grid(cell)[1]) for cell in pair]
        work = worlds[0][1]
        anyway = [Case(key=(name,), scenario=each, program=program, work=work) for name, each, program in worlds]
        cases = [anyway[0], attrs.evolve(anyway[1], unlimited=anyway[0].key)]

        found, _ = simulate(cases, [1], jobs=1, what="", keep=lambda _: None)
        twice, _ = simulate(anyway, [1], jobs=1, what="", keep=lambda _: None)

        runs = [found.of(case.key[0])[0] for case in cases]
        assert (runs[0] is runs[1]) != limited
        assert runs == [twice.of(case.key[0])[0] for case in cases]
        assert bool(runs[0].limited) is limited
