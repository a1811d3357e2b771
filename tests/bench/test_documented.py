"""Figures of documents are those of the result files, so that a new run, or a new text, leaves neither behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from bench.ideal import SCENARIOS
from bench.simulated.published import PAPER

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text("utf-8")
BENCH: Final = " ".join((ROOT / "bench/README.md").read_text("utf-8").split())
"""With its lines joined: where a line ends is no matter."""


def rows(part: str, number: int = 0) -> list[dict[str, Any]]:
    """The rows of one table of `bench/results/PART.json`."""
    found = json.loads((ROOT / f"bench/results/{part}.json").read_text("utf-8"))["tables"][number]["rows"]
    assert isinstance(found, list)
    return found


def said(pattern: str) -> list[str]:
    """The figures that the only sentence of `bench/README.md` that reads so has in its groups."""
    (found,) = re.finditer(pattern, BENCH)
    return [group.replace(",", "") for group in found.groups()]


def test_the_table_of_the_readme_is_that_of_the_paper_s_scenarios() -> None:
    table = README[README.index("| dead agents, % |") :].split("\n\n")[0].splitlines()
    names, _, direct, ours, paper, over = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    made = {(row["scenario"], row["way"]): row for row in rows("paper")}

    assert names[1:] == list(PAPER)
    assert direct[1:] == [f"{made[name, 'direct']['dead'][0]:.0f}" for name in PAPER]
    assert ours[1:] == [f"{made[name, 'proxy']['dead'][0]:.0f}" for name in PAPER]
    assert paper[1:] == [f"{figures.proxied:.0f}" for figures in PAPER.values()]
    assert over[1:] == [f"{made[name, 'proxy']['makespan / bound'][0]:.2f}" for name in PAPER]
    assert set(made["stress", "proxy"]["seeds"]) == set(range(1, int(said_seeds()) + 1))


def said_seeds() -> str:
    """How many seeds the README names."""
    (found,) = re.findall(r"simulated over\s+(\d+) seeds", README)
    return str(found)


REGIMES_MADE: Final = {(row["scenario"], row["way"]): row for row in rows("regimes")}
PROXY, DIRECT, EXACT = "the proxy", "direct, with the SDK's retries", "the proxy, exact hints (oracle)"
QUOTAS: Final = ("requests-bind", "input-binds", "output-binds", "mixed", "fixed-window", "sliding-window", "gcra")
"""Regimes in which a window binds, and the policy declares it."""


def mean(row: dict[str, Any], column: str) -> float:
    return float(row[column][0])


def test_the_sentences_about_regimes_are_those_of_their_table() -> None:
    def of(way: str, column: str, *names: str) -> list[float]:
        return [mean(REGIMES_MADE[name, way], column) for name in names]

    names = list(dict.fromkeys(name for name, _ in REGIMES_MADE))
    deaths = sorted(of(DIRECT, "dead", *(name for name in names if name != "fixed-window")))
    wasted = max(of(PROXY, "wasted attempts per turn", *QUOTAS))
    over = sorted(of(PROXY, "makespan / bound", *QUOTAS, "concurrency-binds"))
    windows = of(EXACT, "makespan / bound", "fixed-window", "sliding-window")

    assert said(r"in `oversized` \(([\d.]+) % of the agents\)\. Direct, (\d+) to (\d+) % die") == [
        f"{mean(REGIMES_MADE['oversized', PROXY], 'dead'):.1f}",
        f"{deaths[0]:.0f}",
        f"{deaths[-1]:.0f}",
    ]
    assert {mean(REGIMES_MADE[name, PROXY], "dead") for name in names if name != "oversized"} == {0}
    assert said(r"declared, at most ([\d.]+) % of the attempts are wasted") == [f"{100 * wasted:.1f}"]
    assert said(r"in `azure` \((\d+) %\), and a growing one in `acceleration` \((\d+) %\)") == [
        f"{100 * one:.0f}" for one in of(PROXY, "wasted attempts per turn", "azure", "acceleration")
    ]
    (lying,) = of(PROXY, "wasted attempts per turn", "lying-retry-after")
    assert said(r"44 % in version 0\.1\.0, and is (\d+) %") == [f"{100 * lying:.0f}"]
    assert said(r"time over the bound is ([\d.]+) to ([\d.]+) without hints\.") == [f"{over[0]:.2f}", f"{over[-1]:.2f}"]
    assert {f"{one:.2f}" for one in windows} == set(said(r"sliding windows it is ([\d.]+) even with exact hints"))
    assert said(r"\(`concurrency-binds`\), ([\d.]+) attempts a turn are wasted") == [
        f"{mean(REGIMES_MADE['concurrency-binds', 'fixed concurrency 16'], 'wasted attempts per turn'):.1f}"
    ]


def test_the_sentences_about_the_ablation_are_those_of_its_tables() -> None:
    tables = [*rows("ablation"), *rows("ablation", 1)]
    made = {(row["scenario"].partition(",")[0], row["variant"]): row for row in tables}

    def dead(scenario: str, variant: str) -> float:
        return mean(made[scenario, variant], "dead")

    assert said(r"without retries (\d+) and (\d+) % of the agents die") == [
        f"{dead(scenario, 'without retry'):.0f}" for scenario in ("replay-11", "stress")
    ]
    assert (
        "half die without quotas, a third without the headers that correct them, and two thirds without fair" in BENCH
    )
    assert dead("stress", "without quotas") == pytest.approx(50, abs=5)
    assert dead("stress", "without headers") == pytest.approx(33, abs=5)
    assert dead("stress", "without fairness") == pytest.approx(67, abs=5)
    assert said(r"Without bypass (\d+) % die") == [f"{dead('stress', 'without bypass'):.0f}"]
    assert "`gcra` (nine in ten agents die without them)" in BENCH
    assert dead("gcra", "without quotas") == pytest.approx(90, abs=5)
    assert "(`concurrency-binds`: two wasted attempts a turn" in BENCH
    assert mean(made["concurrency-binds", "without aimd"], "wasted attempts per turn") == pytest.approx(2, abs=0.25)
    assert said(r"Growth matters in `acceleration` \(([\d.]+) wasted attempts a turn\)") == [
        f"{mean(made['acceleration', 'without growth'], 'wasted attempts per turn'):.1f}"
    ]


def test_the_sentences_about_the_grid_are_those_of_its_table() -> None:
    cells = {row["scenario"]: row for row in rows("grid")}
    right = [row for name, row in cells.items() if "declared right" in name and row["bound"] != "chain"]
    nothing = {name: row for name, row in cells.items() if "declared nothing" in name}
    wrong = {name: row for name, row in cells.items() if "declared wrong" in name}
    over = sorted(mean(row, "makespan / bound") for row in right)
    chain = sorted(mean(row, "makespan / bound") for row in cells.values() if row["bound"] == "chain")
    slowest = max(
        (name for name in wrong if wrong[name]["bound"] != "chain"),
        key=lambda name: mean(wrong[name], "makespan / bound"),
    )

    assert said(r"in `input, gcra` \(([\d.]+) %\), at ([\d.]+) to ([\d.]+) of the bound") == [
        f"{max(mean(row, 'dead') for row in cells.values()):.1f}",
        f"{over[0]:.2f}",
        f"{over[-1]:.2f}",
    ]
    assert {
        name.partition(", declared")[0]
        for name, row in cells.items()
        if mean(row, "dead") and "declared wrong" not in name
    } == {"input bind, gcra"}
    assert max(mean(row, "wasted attempts per turn") for row in nothing.values()) < 0.2
    assert said(
        r"up to ([\d.]+) % more die \(`concurrency`\), and several limits that bind cost up to ([\d.]+) times"
    ) == [
        f"{max(mean(row, 'dead') for name, row in wrong.items() if name.startswith('concurrency')):.1f}",
        f"{mean(wrong[slowest], 'makespan / bound'):.1f}",
    ]
    assert slowest.startswith("mixed bind, sliding")
    assert said(r"the bound is loose \(([\d.]+) to ([\d.]+)\)") == [f"{chain[0]:.1f}", f"{chain[-1]:.1f}"]


def test_the_sentences_about_the_ideal_order_are_those_of_its_table() -> None:
    lines = (ROOT / "bench/results/ideal.md").read_text("utf-8").splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    means = {name: (float(told.split()[0]), float(untold.split()[0])) for name, told, untold in cells}

    assert tuple(means) == SCENARIOS
    assert "1.25 without hints therefore seems out of reach, except in `input-binds`." in BENCH
    assert [name for name, (_, untold) in means.items() if untold < 1.25] == ["input-binds"]
    weak = sorted(told for name, (told, _) in means.items() if "window" not in name and name != "undeclared")
    assert said(r"in `gcra`, of ([\d.]+) to ([\d.]+) possible") == [f"{weak[0]:.2f}", f"{weak[-1]:.2f}"]


def test_the_calls_of_a_decision_are_those_that_were_counted() -> None:
    counted = {(row["policy"], row["waiting"]): f"{row['calls']:.0f}" for row in rows("decision")}

    assert said(r"machine: (\d+) and (\d+) with 100 calls waiting, (\d+) and (\d+) with 1,000\.") == [
        counted[policy, waiting] for waiting in (100, 1_000) for policy in ("all", "plain")
    ]


def test_the_cost_of_a_call_is_what_was_measured() -> None:
    by_subject = {row["subject"]: row for row in rows("overhead")}
    ours, theirs = by_subject["hivemind-trio"], by_subject["hivemind-scheduler"]

    def ms(row: dict[str, Any], name: str) -> str:
        return f"{row[name] / 1_000:.1f}"

    assert said(r"Ours cost ([\d.]+) to ([\d.]+) ms a call .* and (\d+) µs an event of a stream") == [
        ms(ours, "crowd_cpu_us"),
        ms(ours, "one_cpu_us"),
        f"{ours['event_cpu_us']:.0f}",
    ]
    assert said(r"\(([\d.]+) and ([\d.]+) ms instead of") == [ms(theirs, "one_cpu_us"), ms(theirs, "crowd_cpu_us")]
    assert said(r"A call makes ([\d,]+) Python function calls") == [f"{ours['python_calls']:.0f}"]
    assert said(r"of 400 a second (\d+) in time, of higher rates (\d+) to (\d+)\.") == [
        f"{ours['open_400']:.0f}",
        *(f"{each:.0f}" for each in sorted(ours[f"open_{rate}"] for rate in (800, 1600, 3200))[::2]),
    ]


def test_the_cost_of_a_call_beside_litellm_is_what_was_measured() -> None:
    made = json.loads((ROOT / "bench/results/overhead.json").read_text("utf-8"))
    cpu = {row["subject"]: row.get("crowd_cpu_us", 0) / 1_000 for row in rows("overhead")}
    (told,) = re.findall(
        r"With 32 clients a call took ([\d.]+) ms of CPU in LiteLLM ([\d.]+), and ([\d.]+) ms in version ([\d.]+) of",
        " ".join(README.split()),
    )

    versions = made["made"]["versions"]
    assert told == (
        f"{cpu['LiteLLM']:.1f}", versions["LiteLLM"], f"{cpu['hivemind-trio']:.1f}", versions["hivemind-trio"],
    )  # fmt: skip


def test_what_is_left_of_an_overloaded_proxy_is_what_was_measured() -> None:
    costs, fates = rows("overload"), rows("overload", 1)
    text = " ".join((ROOT / "hivemind_trio/docs/operating.md").read_text("utf-8").split())

    ratios = sorted(row["ratio"] for row in costs)
    assert f"A refusal takes {100 * ratios[0]:.0f} to {100 * ratios[-1]:.0f} % of the CPU of a call" in text
    assert "still serves nine tenths of its peak or more" in text
    most = [row["of_peak"] for row in fates if row["rate"] == 5]
    assert min(most) > 0.9
    assert said(r"goodput is (\d+) \(connections that are kept\) and (\d+) % \(new ones\) of its peak") == [
        f"{100 * each:.0f}" for each in reversed(most)
    ]
    lasted = [row["took_s"] for row in fates if row["rate"] == 5]
    assert said(r"the median call that is served takes ([\d.]+) and ([\d.]+) s") == [
        f"{each:.1f}" for each in reversed(lasted)
    ]
    low, high = min(row["goodput_5"] for row in costs), max(row["goodput_5"] for row in costs)
    assert said(r"by the costs alone (\d+) to (\d+) %") == [f"{100 * low:.0f}", f"{100 * high:.0f}"]
    assert {row["closed"] + row["waited in vain"] + row["other"] for row in fates} == {0}


def test_the_sentences_about_agentrm_are_those_of_its_table() -> None:
    made = {(row["scenario"], row["ordering"]): row for row in rows("agentrm")}
    fifo, ours = "FIFO + reaper", "ours: weighted lanes + reaper"
    ratios = [made[name, ours]["turn p95"][0] / made[name, fifo]["turn p95"][0] for name, _ in made]

    assert said(r"With the same reaper ours has ([\d.]+) to ([\d.]+) times the overall p95 of FIFO") == [
        f"{min(ratios):.2f}",
        f"{max(ratios):.2f}",
    ]
    table = (ROOT / "bench/results/agentrm.md").read_text("utf-8").splitlines()
    [(was, _, was_last), (now, _, now_last)] = [
        next(line for line in table if line.startswith(f"| high-load | {way} |")).split("|")[5].strip().split(" / ")
        for way in (fifo, ours)
    ]
    assert said(
        r"in `high-load` (\d+) s for interactive calls instead of (\d+), "
        r"and (\d+) s for background calls instead of (\d+)"
    ) == [now, was, now_last, was_last]


def test_the_speed_of_the_simulator_is_what_was_measured() -> None:
    (row,) = rows("simulator")

    assert said(r"shared machine reached ([\d,]+) \(\[figures\]\(results/simulator.json\)\)") == [
        f"{row['per_second']}"
    ]
    assert said(r"A simulated call makes (\d+) function calls") == [f"{row['functions']:.0f}"]


def test_the_times_of_checks_are_what_was_measured() -> None:
    of = {(row["policy"], row["lines"]): row for row in rows("language")}
    for policy in ("specific", "shadowed", "globs"):
        few, many = of[policy, 200], of[policy, 5_000]
        shown = [f"{few['check_ms']:.0f}", f"{many['check_ms']:.0f}", f"{many['read']:.0%}", f"{many['analysis']:.0%}"]
        assert said(rf"\| `{policy}` \| ([\d,]+) ms \| ([\d,]+) ms \| (\d+%) \| (\d+%) \|") == shown
        assert few["check_ms"] < 50
        assert many["check_ms"] < 2_000


@pytest.mark.parametrize("part", sorted(path.stem for path in (ROOT / "bench/results").glob("*.json")))
def test_a_table_was_written_together_with_its_figures(part: str) -> None:
    """The Markdown names the same day, and has a line for each title: nobody wrote into one of the two by hand."""
    file = ROOT / f"bench/results/{part}.json"
    made = json.loads(file.read_text("utf-8"))
    if (text := file.with_suffix(".md")).exists():
        lines = text.read_text("utf-8").splitlines()
        assert lines[2].startswith(f"{made['made']['date']}; ")
        assert [f"## {table['title']}" in lines for table in made["tables"]] == [True] * len(made["tables"])


def test_the_sentences_about_fidelity_are_those_of_its_table() -> None:
    made = {(row["way"], row["quantity"]): row for row in rows("fidelity")}
    proxy = {quantity: row for (way, quantity), row in made.items() if way == "proxy"}
    waits = ["wait p50, s", "wait p95, s"]
    others = {row["near"] for quantity, row in proxy.items() if quantity not in waits}
    untold = sorted(row["near_untold"] for row in proxy.values())
    steady = sorted(row["steady"] for row in proxy.values())

    assert others == {13} == {row["scenarios"] for row in made.values()}
    assert said(r"p95 of turns are right in (\d+) of 13, p50 and p95 of waits in (\d+) and (\d+);") == [
        *map(str, others),
        *(f"{proxy[wait]['near']}" for wait in waits),
    ]
    assert said(r"socket runs agree with each other in (\d+) to (\d+) of 13") == [f"{steady[0]}", f"{steady[-1]}"]
    assert said(r"the simulator is right in (\d+) to (\d+) of 13") == [f"{untold[0]}", f"{untold[-1]}"]
    assert "**Direct**: all figures are right except one p50 of streams" in BENCH
    assert {quantity for (way, quantity), row in made.items() if way == "direct" and row["near"] < 13} == {
        "turn p50, s"
    }


def test_the_sentences_about_forecasts_of_held_out_drawings_are_those_of_their_table() -> None:
    (made,) = rows("forecast_held_out")
    drawn = {row["kind"]: row for row in rows("forecast_fresh") if row["fleet"].endswith(" fleets")}

    assert said(r"the bound held for (\d+)% of their starts, and the median error is \*\*(\d+)%\*\*, the target") == [
        f"{100 * made['held']:.0f}",
        f"{100 * made['error']:.0f}",
    ]
    assert said(r"(\d+) of (\d+) fleets are within 25 %") == [f"{made['good']}", f"{made['far_fleets']}"]
    assert said(r"drawn ones had 62 % and have (\d+)%, simulated ones 17 and (\d+)%") == [
        f"{100 * drawn[kind]['error']:.0f}" for kind in ("drawn", "simulated")
    ]
    assert said(r"The floor of the drawn fleets is (\d+)%") == [f"{100 * drawn['drawn']['floor']:.0f}"]


def test_the_sentences_about_forecasts_are_those_of_their_table() -> None:
    made = rows("forecast")
    totals = {row["kind"]: row for row in made if "within" in row}
    single = {row["fleet"]: row for row in made if row["kind"] == "simulated"}
    kinds = ("simulated", "adversary", "drawn")
    fleets = [row for row in made if "within" not in row and row["calls"] * (1 - row["not_started"]) > 39.5]

    assert said(r"alone, without calibration, hold (\d+)%, (\d+)% and (\d+)%\.") == [
        f"{100 * totals[kind]['held_raw']:.0f}" for kind in kinds
    ]
    assert said(r"The median error is (\d+)% for simulated, (\d+)% for adversary and (\d+)% for drawn fleets") == [
        f"{100 * totals[kind]['error']:.0f}" for kind in kinds
    ]
    assert said(r"within the target for (\d+) of (\d+) fleets of 40 calls and more; (\d+) others hold it more") == [
        f"{sum(0.85 <= row['held'] <= 0.95 for row in fleets)}",
        f"{len(fleets)}",
        f"{sum(row['held'] > 0.95 for row in fleets)}",
    ]
    assert said(r"decides: `outage` \((\d+)%\), `storm` \((\d+)%\) and `lying-retry-after` \((\d+)%\)") == [
        f"{100 * single[fleet]['error']:.0f}" for fleet in ("outage", "storm", "lying-retry-after")
    ]


def test_the_sentences_about_forecasts_over_sockets_are_those_of_their_table() -> None:
    total, *found = rows("forecast_sockets")
    made = {row["fleet"]: row for row in found}

    assert said(r"the median error is (\d+)%, and the bound holds for (\d+)% of the starts, which \*\*misses\*\*") == [
        f"{100 * total['error']:.0f}",
        f"{100 * total['held']:.0f}",
    ]
    assert 0.95 < total["held"] < 0.96
    assert said(
        r"(\d+)% of `micro-50` \(62 before, and (\d+)% by the futures alone\), (\d+)% of `agentrm-high-load` and "
        r"(\d+)% of `storm`"
    ) == [
        f"{100 * made[fleet][figure]:.0f}"
        for fleet, figure in (
            ("micro-50", "held"), ("micro-50", "held_raw"), ("agentrm-high-load", "held"), ("storm", "held")
        )
    ]  # fmt: skip


def test_the_waits_of_several_nodes_are_those_of_their_table() -> None:
    ratio = median(row["wait_p95_s"] / row["ideal_p95_s"] for row in rows("several") if row.get("who") != "one proxy")

    assert said(r"\| four nodes over sockets \| ([\d.]+) \|") == [f"{ratio:.2f}"]
