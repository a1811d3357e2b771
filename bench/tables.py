"""Tables as Markdown and JSON, and what they were made with. No host, no path."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import attrs

from hivemind_trio.sim import Estimate, Figures, Metric, estimate


@final
@attrs.frozen(kw_only=True)
class Table:
    """One table, and the figures that it was made of."""

    title: str
    notes: Sequence[str] = ()
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    figures: Sequence[Mapping[str, Any]] = ()

    def markdown(self) -> str:
        """With the notes above."""
        lines = [f"## {self.title}", ""]
        for note in self.notes:
            lines += [note, ""]
        lines += ["| " + " | ".join(self.head) + " |", "|" + "|".join("---" for _ in self.head) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, ""])


def provenance(**more: Any) -> dict[str, Any]:
    """Machine, versions and date."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("hivemind-trio", "trio", "hypercorn", "h11")},
        **more,
    }


def write(tables: Sequence[Table], made: Mapping[str, Any], *, title: str, md: Path | None, data: Path | None) -> str:
    """Write what is wanted where it is wanted; the Markdown."""
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    rest = "; ".join(
        f"{key} {value}" for key, value in made.items() if key not in ("date", "machine", "python", "versions")
    )
    head = f"{made['date']}; {made['machine']}; Python {made['python']}; {versions}; {rest}"
    text = "\n".join([f"# {title}", "", head, "", *(table.markdown() for table in tables)])
    if md is not None:
        md.parent.mkdir(parents=True, exist_ok=True)
        md.write_text(text, "utf-8")
    if data is not None:
        data.parent.mkdir(parents=True, exist_ok=True)
        said = {"made": dict(made), "tables": [{"title": each.title, "rows": list(each.figures)} for each in tables]}
        data.write_text(json.dumps(said, indent=1) + "\n", "utf-8")
    return text


def of_runs(runs: Sequence[Figures], metrics: Sequence[Metric]) -> dict[str, Any]:
    """Mean and interval of each metric, for machines."""
    said: dict[str, Any] = {"seeds": [run.seed for run in runs], "agents": runs[0].agents}
    for metric in metrics:
        found = estimate([metric.of(run) for run in runs])
        said[metric.name] = (
            None if found is None else [round(value, 6) for value in (found.mean, found.low, found.high)]
        )
    return said | {"bound": runs[0].bound_binds, "digests": [run.digest for run in runs]}


def cell(found: Estimate | None, digits: int = 2, *, never: str = "–") -> str:
    """`1.03 ± 0.01`."""
    if found is None:
        return never
    half = found.high - found.mean
    said = f"{found.mean:,.{digits}f}"
    return said if half < 0.5 * 10**-digits else f"{said} ± {half:,.{digits}f}"
