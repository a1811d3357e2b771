"""Figures of documents are those of the result files, so that a new run, or a new text, leaves neither behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

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


def test_what_is_left_of_an_overloaded_proxy_is_what_was_measured() -> None:
    costs, fates = rows("overload"), rows("overload", 1)
    text = " ".join((ROOT / "hivemind_trio/docs/operating.md").read_text("utf-8").split())

    assert "A refusal takes about a thirtieth of the CPU of a call" in text
    assert all(1 / 50 < row["ratio"] < 1 / 20 for row in costs)
    assert "four fifths to nine tenths of its capacity are left for calls" in text
    assert all(0.78 < row["goodput_5"] < 0.93 for row in costs)
    assert {row["closed"] + row["waited in vain"] + row["other"] for row in fates} == {0}


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
