"""Metrics in the formats of Prometheus: text, and OpenMetrics for whoever accepts it.

Names are Prometheus' (base units, `_total`), and every one begins with `hivemind_`. What is counted is taken over at
the request; what there is now, calls, limits and budgets, is read from the scheduler then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from hivemind_trio.admin import CallMetrics, Distribution, KnownFleet, Operated
from hivemind_trio.admin.views import NodeState
from hivemind_trio.scheduler import Circuit, Snapshot

from .routes import ControlAnswer, ControlRequest, ControlRoute

if TYPE_CHECKING:
    from prometheus_client.core import Metric

USD: Final = 1_000_000
NS: Final = 1_000_000_000

Extra = Callable[[], Mapping[str, float]]
"""Gauges beside those of the proxy: name without prefix -> value."""

HELP: Final[Mapping[str, str]] = {
    "journal_unwritten_rows": "Entries of the journal that are not on the disk yet.",
    "journal_dropped_rows": "Entries that the journal left out, for too many waited for the disk.",
    "state_writable": "1 if budgets can be written, 0 if not: calls that count against one wait.",
    "loop_lag_seconds": "Mean time of the last turns of the event loop.",
    "overload_rejections": "Calls that were rejected because the process could not keep up.",
}
"""Help of the gauges that `Extra` may give."""


Collect = Callable[[], "Awaitable[list[Metric]]"]
"""Returns all metrics, in any order of families."""


def collecting(proxy: Operated, extra: Extra) -> Collect:
    """Return what collects the metrics of a proxy in this process."""

    async def collect() -> list[Metric]:
        if proxy.fellows is not None:
            await proxy.fellows.look()
        found = list(families(proxy, extra))
        # Those of the process read files.
        return found + await trio.to_thread.run_sync(lambda: list(of_process()))

    return collect


def metrics_route(collect: Collect) -> ControlRoute:
    """Return the route of `/metrics`."""

    async def answer(request: ControlRequest) -> ControlAnswer:
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        found = await collect()
        # A large policy has thousands of lines, which would take the event loop milliseconds.
        body = await trio.to_thread.run_sync(partial(_encoded, encode, found))
        return ControlAnswer(body=body, content_type=content_type)

    return ControlRoute("GET", "/metrics", answer)


def _encoded(encode: Callable[[Any], bytes], found: list[Metric]) -> bytes:
    class Collected:
        """Registry, as the encoder takes one."""

        def collect(self) -> Iterable[Metric]:
            yield from found

    return encode(Collected())


def of_process() -> Iterator[Metric]:
    """Yield the metrics of this process."""
    from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR

    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        yield from collector.collect()


def families(proxy: Operated, extra: Extra) -> Iterator[Metric]:
    """Yield all metrics of the proxy."""
    snapshot = proxy.engine.snapshot()
    yield from _counted(proxy.metrics)
    yield from _of_now(proxy, snapshot)
    yield from _of_providers(snapshot)
    yield from _of_budgets(proxy)
    if proxy.fellows is not None:
        yield from _of_nodes(proxy.fellows.known())
    for name, value in extra().items():
        yield _gauge(name, HELP[name], (), {(): value})


def _counted(metrics: CallMetrics) -> Iterator[Metric]:
    yield _counter("calls", "Calls that are over.", ("lane", "provider", "agent", "outcome"), metrics.calls)
    yield _counter("rejections", "Calls that the proxy rejected.", ("lane", "reason"), metrics.rejections)
    yield _counter("attempts", "Attempts at providers that are over.", ("provider", "outcome"), metrics.attempts)
    yield _counter(
        "tokens", "Tokens of answers that reported their usage.", ("provider", "agent", "kind"), metrics.tokens
    )
    cost = {labels: amount / USD for labels, amount in metrics.cost.items()}
    yield _counter("cost_dollars", "Cost of answers whose price is known.", ("provider", "agent"), cost)
    yield _histogram(
        "wait_seconds", "Time in the queue of calls that reached a provider.", ("lane", "reason"), metrics.waits
    )
    yield _histogram(
        "call_duration_seconds",
        "Time from the arrival of a call to its end, of calls that reached a provider.",
        ("lane", "provider"),
        metrics.durations,
    )
    yield _histogram(
        "first_byte_seconds", "Time from a request to the first byte of its answer.", ("provider",), metrics.first_bytes
    )


def _of_now(proxy: Operated, snapshot: Snapshot) -> Iterator[Metric]:
    waiting = proxy.engine.occupancy().waiting
    oldest_ns = max((call.waited_ns for call in waiting), default=0)
    lanes: dict[tuple[str, ...], float] = {}
    for pool in snapshot.pools.values():
        for lane, inflight in pool.lanes_inflight.items():
            lanes[(lane,)] = lanes.get((lane,), 0) + inflight
    yield _gauge(
        "info",
        "The proxy: its version and the hash of the policy in force; always 1.",
        ("version", "policy"),
        {(proxy.facts.version, snapshot.program_hash): 1},
    )
    yield _gauge("uptime_seconds", "Time since the start.", (), {(): proxy.engine.now_ns() / NS})
    yield _gauge("draining", "1 while the proxy accepts no calls, for it shuts down.", (), {(): snapshot.draining})
    yield _gauge("agents", "Agents and callers with a call waiting or in flight.", (), {(): snapshot.agents})
    waits = {(lane,): float(count) for lane, count in snapshot.lanes_waiting.items()}
    yield _gauge("waiting_calls", "Calls in the queue.", ("lane",), waits)
    yield _gauge("inflight_calls", "Calls at providers.", ("lane",), lanes)
    yield _gauge("oldest_wait_seconds", "Longest wait of a call that still waits.", (), {(): oldest_ns / NS})


def _of_providers(snapshot: Snapshot) -> Iterator[Metric]:
    pools = snapshot.pools.items()
    yield _gauge(
        "provider_inflight_calls",
        "Calls at the provider.",
        ("provider",),
        {(name,): pool.inflight for name, pool in pools},
    )
    yield _gauge(
        "provider_waiting_calls",
        "Calls that wait for the provider.",
        ("provider",),
        {(name,): pool.waiting for name, pool in pools},
    )
    yield _gauge(
        "provider_concurrency_limit",
        "Concurrency limit in force.",
        ("provider",),
        {(name,): pool.limit for name, pool in pools},
    )
    yield _gauge(
        "provider_circuit",
        "State of the circuit breaker: 1 for the state it is in.",
        ("provider", "state"),
        {(name, state.value): float(pool.circuit is state) for name, pool in pools for state in Circuit},
    )
    yield _counter(
        "provider_standstill_seconds",
        "Time in which calls waited for the provider and none was in flight.",
        ("provider",),
        {(name,): pool.stood_ns / NS for name, pool in pools},
    )
    labels = ("provider", "group", "model", "measure", "window")
    buckets = {
        (name, group or "", model or "", str(bucket.dimension), f"{bucket.window_ns // NS}s"): bucket
        for name, pool in pools
        for (group, model), gate in pool.gates.items()
        for bucket in gate.buckets
    }
    yield _gauge(
        "rate_limit",
        "Rate limit that is declared or that headers tell of, of a window.",
        labels,
        {key: bucket.limit for key, bucket in buckets.items()},
    )
    yield _gauge(
        "rate_limit_used",
        "Use of the rate limit in the window of now.",
        labels,
        {key: bucket.limit - bucket.left for key, bucket in buckets.items()},
    )


def _of_budgets(proxy: Operated) -> Iterator[Metric]:
    """Yield the largest share of each budget, over its partitions: of agents and sessions there is no end."""
    used: dict[tuple[str, ...], float] = {}
    partitions: dict[tuple[str, ...], float] = {}
    held: dict[tuple[str, ...], float] = {}
    for account in proxy.engine.accounts():
        key = account.key.budget, str(account.key.measure)
        amount = account.allowance.amount
        used[key] = max(used.get(key, 0.0), account.spent / amount if amount else 1.0)
        partitions[key] = partitions.get(key, 0) + 1
        held[key] = held.get(key, 0) + account.held
    labels = ("budget", "measure")
    yield _gauge("budget_used_ratio", "Share of the budget that is spent; of partitions the largest.", labels, used)
    yield _gauge("budget_partitions", "Partitions of the budget that have spent anything.", labels, partitions)
    yield _gauge("budget_held_partitions", "Partitions whose calls wait for the budget.", labels, held)


def _of_nodes(fleet: KnownFleet) -> Iterator[Metric]:
    """Yield what this process knows of nodes that share its limits; each tells of its own share."""
    states = {(state.value,): float(sum(one.state is state for one in fleet.nodes)) for state in NodeState}
    yield _gauge("nodes", "Nodes that share limits, as this one knows them.", ("state",), states)
    policies = {one.policy for one in fleet.nodes if one.state is NodeState.ALIVE and one.policy is not None}
    yield _gauge("node_policies", "Different policies that live nodes run.", (), {(): len(policies)})
    own = [share for one in fleet.nodes if one.own for share in one.shares]
    yield _gauge(
        "node_share",
        "Calls that this node may have in flight at the provider now.",
        ("provider",),
        {(share.provider,): share.share for share in own},
    )
    yield _gauge(
        "node_leads",
        "1 if this node learns the limit and the circuit of the provider for all nodes.",
        ("provider",),
        {(share.provider,): float(share.leads) for share in own},
    )
    yield _gauge("shared_store_reachable", "1 if the shared store answers.", (), {(): float(fleet.away_s is None)})


# ---- families ----


def _counter(name: str, about: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"hivemind_{name}", about, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, about: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"hivemind_{name}", about, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family


def _histogram(name: str, about: str, labels: tuple[str, ...], found: Distribution[Any]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(f"hivemind_{name}", about, labels=labels)
    for key, counts in found.series.items():
        below = 0.0
        buckets = []
        for bound, count in zip((*map(str, found.bounds), "+Inf"), counts[:-1], strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric(key, buckets, counts[-1])
    return family
