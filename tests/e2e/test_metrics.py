"""Metrics of a real `serve`: read by Prometheus' own parser, equal to the control API, bounded."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from hivemind_trio.demo import SimulatedProvider
from tests.e2e.control import BODY, command, found, occupied
from tests.e2e.house import CAP_1 as HOUSE
from tests.e2e.house import standing, until
from tests.e2e.process import Proxy, serving

DASHBOARD = Path(__file__).parents[2] / "policies" / "deploy" / "grafana.json"

POLICY = """
hmp 1
server {{ metrics "127.0.0.1:0" }}
provider sim {{ api generic; base "{url}"; concurrency 1; limits {{ requests 600/min }} }}
lane slow {{ deadline 300s }}
agent ci {{ lane slow }}
rule no when model ~ "gpt-*" {{ deny "not here" }}
budget calls per agent {{ requests 100/day }}
model "claude-*" {{ price input $1000/Mtok output $2000/Mtok }}
"""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str, parse: Any = text_string_to_metric_families) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def control_sockets(runtime: dict[str, str]) -> list[Path]:
    return list(Path(runtime["XDG_RUNTIME_DIR"]).rglob("*.sock"))


async def scraped(proxy: Proxy, accept: str = "") -> httpx2.Response:
    url = (await proxy.says("metrics_opened"))["url"]
    async with httpx2.AsyncClient(timeout=120) as client:
        return await client.get(url, headers={"accept": accept} if accept else {})


async def ask(proxy: Proxy, **more: Any) -> int:
    async with httpx2.AsyncClient(base_url=f"{proxy.url}/@ci", timeout=120) as client:
        return (await client.post("/v1/messages", json={**BODY, **more})).status_code


def value(found: Samples, name: str, **labels: str) -> float:
    return found[f"hivemind_{name}", frozenset(labels.items())]


async def test_metrics_count_what_happens_and_agree_with_the_control_api(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(POLICY.format(url=provider.url))
    async with serving("--policy", path, env=runtime) as proxy:
        assert [await ask(proxy), await ask(proxy), await ask(proxy, model="gpt-5")] == [200, 200, 403]
        async with occupied(proxy, provider, 3):
            now = samples((await scraped(proxy)).text)
            status = await found(runtime, "status")

    assert value(now, "calls_total", lane="slow", provider="sim", agent="ci", outcome="served") == 2
    assert value(now, "rejections_total", lane="slow", reason="denied") == 1
    assert value(now, "attempts_total", provider="sim", outcome="succeeded") == 2
    tokens = sum(count for (name, _), count in now.items() if name == "hivemind_tokens_total")
    cost = value(now, "cost_dollars_total", provider="sim", agent="ci")
    output = value(now, "tokens_total", provider="sim", agent="ci", kind="output")
    assert cost == pytest.approx((tokens - output) * 0.001 + output * 0.002)
    assert sum(count for (name, _), count in now.items() if name == "hivemind_wait_seconds_count") == 2
    assert value(now, "first_byte_seconds_count", provider="sim") == 2
    (sim,) = status["providers"]
    assert value(now, "provider_inflight_calls", provider="sim") == sim["inflight"] == 1
    assert value(now, "provider_waiting_calls", provider="sim") == sim["waiting"] == 2
    assert value(now, "provider_concurrency_limit", provider="sim") == sim["limit"] == 1
    assert value(now, "provider_circuit", provider="sim", state=sim["circuit"]) == 1
    assert {lane["name"]: lane["waiting"] for lane in status["lanes"]} == {
        lane: value(now, "waiting_calls", lane=lane) for lane in ("slow", "default")
    }
    assert value(now, "rate_limit", provider="sim", group="", model="", measure="requests", window="60s") == 600
    assert value(now, "budget_used_ratio", budget="calls", measure="requests") == pytest.approx(0.02, abs=0.011)
    assert value(now, "info", version=status["version"], policy=status["policy"]["hash"]) == 1
    assert value(now, "state_writable") == 1
    assert any(name == "process_cpu_seconds_total" for name, _ in now)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
async def test_promtool_has_nothing_against_the_names(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(POLICY.format(url=provider.url))
    async with serving("--policy", path, env=runtime) as proxy:
        await ask(proxy)
        text = (await scraped(proxy)).text

    judged = await trio.run_process(
        ["promtool", "check", "metrics"], stdin=text.encode(), capture_stdout=True, capture_stderr=True, check=False
    )

    assert (judged.returncode, judged.stdout + judged.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("doors", "counted"),
    [("", True), ("admin off", False), ("admin off; metrics off", False), ('admin off; metrics "[::1]:0"', True)],
)
async def test_calls_are_counted_only_where_somebody_can_read_it(doors: str, counted: bool) -> None:
    async with standing(HOUSE.replace("hmp 1", f"hmp 1\nserver {{ {doors} }}")) as place:
        async with httpx2.AsyncClient(timeout=120) as client:
            answer = await client.post(f"{place.url}/v1/messages", json=BODY)
        assert answer.status_code == 200
        await until(lambda: len(place.records) == 1)
        metrics = place.house.metrics

    assert (sum(metrics.calls.values()), sum(metrics.attempts.values())) == ((1, 1) if counted else (0, 0))
    assert bool(metrics.waits.series) is counted


async def test_without_an_admin_there_is_no_socket_and_the_metrics_are_served(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(POLICY.format(url=provider.url).replace("server {", "server { admin off;"))
    async with serving("--policy", path, env=runtime) as proxy:
        assert await ask(proxy) == 200
        now = samples((await scraped(proxy)).text)
        code, _, error = await command(runtime, "status", "--policy", str(path))

    assert value(now, "calls_total", lane="slow", provider="sim", agent="ci", outcome="served") == 1
    assert (code, control_sockets(runtime)) == (2, [])
    assert "`server { admin off }`" in error


async def test_callers_and_models_that_nobody_declared_make_no_series(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(POLICY.format(url=provider.url).replace("concurrency 1", "concurrency 4"))
    async with serving("--policy", path, env=runtime) as proxy:
        await ask(proxy, model="claude-a")
        before = set(samples((await scraped(proxy)).text))
        async with httpx2.AsyncClient(timeout=120) as client:
            for number in range(20):
                await client.post(
                    f"{proxy.url}/v1/messages",
                    json={**BODY, "model": f"claude-{number}"},
                    headers={"x-api-key": f"key-{number}", "x-hivemind-job": f"job-{number}"},
                )
        after = set(samples((await scraped(proxy)).text))

    new = {name for name, labels in after - before if ("agent", "unknown") not in labels and "wait" not in name}
    assert {name for name in new if name.startswith("hivemind_")} <= {
        "hivemind_call_duration_seconds_bucket", "hivemind_call_duration_seconds_count",
        "hivemind_call_duration_seconds_sum", "hivemind_info",
    }  # fmt: skip
    assert not [labels for _, labels in after for _, text in labels if re.search(r"key-|job-|claude-\d", text)]


async def test_openmetrics_health_and_nothing_else_are_at_the_address(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(POLICY.format(url=provider.url))
    async with serving("--policy", path, env=runtime) as proxy:
        await ask(proxy)
        answer = await scraped(proxy, "application/openmetrics-text; version=1.0.0")
        base = (await proxy.says("metrics_opened"))["url"].removesuffix("/metrics")
        async with httpx2.AsyncClient(base_url=base, timeout=120) as client:
            ready, status = await client.get("/readyz"), await client.get("/v1/status")
            browser = await client.get("/metrics", headers={"origin": "https://evil.example"})

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert value(samples(answer.text, openmetrics), "attempts_total", provider="sim", outcome="succeeded") == 1
    assert (ready.status_code, status.status_code, browser.status_code) == (200, 404, 403)


async def test_with_a_token_every_request_needs_it(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(POLICY.format(url=provider.url).replace('"127.0.0.1:0"', '"127.0.0.1:0" token env(T)'))
    async with serving("--policy", path, env={**runtime, "T": "secret-token"}) as proxy:
        url = (await proxy.says("metrics_opened"))["url"]
        async with httpx2.AsyncClient(timeout=120) as client:
            without = await client.get(url)
            given = await client.get(url, headers={"authorization": "Bearer secret-token"})

    assert (without.status_code, given.status_code) == (401, 200)
    assert "server { metrics ... token }" in without.json()["detail"]


async def test_every_query_of_the_dashboard_names_metrics_and_labels_that_exist(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    path = tmp_path / "team.hmp"
    path.write_text(POLICY.format(url=provider.url))
    async with serving("--policy", path, env=runtime) as proxy:
        await ask(proxy)
        there = samples((await scraped(proxy)).text)
    labels: dict[str, set[str]] = {}
    for name, given in there:
        labels.setdefault(name, set()).update(label for label, _ in given)

    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    for panel in panels:
        for target in panel["targets"]:
            names = re.findall(r"hivemind_\w+", target["expr"])
            assert names, target
            assert set(names) <= set(labels), target
            wanted = {
                *re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]),
                *re.findall(r"(\w+)(?:=|!=|=~)\"", target["expr"]),
                *(word for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for word in group.split(", ")),
            }
            assert wanted <= set().union(*(labels[name] for name in names)), target
