"""Metrics of all workers as those of one proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Sample: TypeAlias = tuple[str, tuple[tuple[str, str], ...], float]
"""Name, labels and value."""
PlainFamily: TypeAlias = tuple[str, str, str, tuple[Sample, ...]]
"""Name, help, type and samples."""

_LARGEST: Final[Sequence[str]] = (
    "hivemind_info",
    "hivemind_uptime_seconds",
    "hivemind_draining",
    "hivemind_oldest_wait_seconds",
    "hivemind_provider_circuit",
    "hivemind_provider_standstill_seconds",
    "hivemind_rate_limit",
    "hivemind_budget_used_ratio",
    "hivemind_budget_partitions",
    "hivemind_loop_lag_seconds",
    "hivemind_nodes",
    "hivemind_node_policies",
    "hivemind_node_leads",
    "python_info",
    "process_max_fds",
)
"""Families of which the largest value holds; others are added up."""
_SMALLEST: Final = ("hivemind_state_writable", "hivemind_shared_store_reachable", "process_start_time_seconds")


def plain(families: Iterable[Metric]) -> list[PlainFamily]:
    """Return metrics as values that can be sent."""
    return [
        (
            family.name,
            family.documentation,
            family.type,
            tuple((one.name, tuple(sorted(one.labels.items())), float(one.value)) for one in family.samples),
        )
        for family in families
    ]


def together(processes: Iterable[Iterable[PlainFamily]]) -> list[Metric]:
    """Return the metrics of processes as those of one."""
    from prometheus_client.core import Metric

    found: dict[str, tuple[str, str, dict[tuple[str, tuple[tuple[str, str], ...]], float]]] = {}
    for families in processes:
        for name, about, kind, samples in families:
            known = found.setdefault(name, (about, kind, {}))[2]
            combine = _COMBINED.get(name, _sum)
            for of, labels, value in samples:
                before = known.get((of, labels))
                known[of, labels] = value if before is None else combine(before, value)
    merged = []
    for name, (about, kind, values) in found.items():
        family = Metric(name, about, kind)
        for (of, labels), value in values.items():
            family.add_sample(of, dict(labels), value)
        merged.append(family)
    return merged


def gauge(name: str, about: str, value: float) -> PlainFamily:
    """Return a gauge without labels."""
    return f"hivemind_{name}", about, "gauge", ((f"hivemind_{name}", (), value),)


def counter(name: str, about: str, value: float) -> PlainFamily:
    """Return a counter without labels."""
    return f"hivemind_{name}", about, "counter", ((f"hivemind_{name}_total", (), value),)


def _sum(one: float, other: float) -> float:
    return one + other


_COMBINED: Final[Mapping[str, Callable[[float, float], float]]] = {
    **dict.fromkeys(_LARGEST, max),
    **dict.fromkeys(_SMALLEST, min),
}
