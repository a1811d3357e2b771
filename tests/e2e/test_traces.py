"""Traces: the spans of calls over real sockets, and their export to a collector."""

from __future__ import annotations

import json
import signal
import ssl
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import httpx2
import pytest
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from hivemind_trio.demo import INSTANT, ScriptedReply, SimulatedProvider
from hivemind_trio.proxy import CallRecord
from hivemind_trio.serve.traces import CallTraces, NoTraces, endpoint, open_traces, wanted
from tests.e2e.house import CAP_1, standing, until
from tests.e2e.process import PATIENCE_S, run, serving

TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Never used; to make one for each call would overload the process."""

SECRET: Final = "sk-the-key-of-an-agent"
PROMPT: Final = "the words of a prompt"
TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"


@attrs.frozen
class Family:
    """The spans of one call."""

    root: ReadableSpan
    waits: Sequence[ReadableSpan]
    attempts: Sequence[ReadableSpan]


@attrs.define
class Recorded:
    """What a proxy in this process has traced."""

    exporter: InMemorySpanExporter = attrs.field(factory=InMemorySpanExporter)
    provider: TracerProvider = attrs.field(factory=partial(TracerProvider, shutdown_on_exit=False))
    traces: CallTraces = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.traces = CallTraces(self.provider.get_tracer("test"), time.time_ns)

    @property
    def families(self) -> dict[str, Family]:
        """Call -> its spans, in order of their begin."""
        spans = sorted(self.exporter.get_finished_spans(), key=lambda span: (span.start_time or 0, span.end_time or 0))
        inside: dict[int, list[ReadableSpan]] = defaultdict(list)
        roots = [span for span in spans if span.name == "hivemind.call"]
        for span in spans:
            if span.name != "hivemind.call":
                assert span.parent is not None
                inside[span.parent.span_id].append(span)
        found = {}
        for root in roots:
            assert root.context is not None
            children = inside.pop(root.context.span_id, [])
            waits = [span for span in children if span.name == "hivemind.wait"]
            found[str(of(root)["hivemind.call"])] = Family(root, waits, [one for one in children if one not in waits])
        assert not inside, "spans without a call"
        assert len(found) == len(roots)
        return found


def of(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


def length_s(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


async def ask(url: str, *, path: str = "/v1/chat/completions", model: str = "gpt-x", **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=TLS) as client:
        return await client.post(
            f"{url}{path}",
            json={"model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 9},
            headers={"authorization": f"Bearer {SECRET}", **headers},
        )


def check(family: Family, record: CallRecord) -> None:
    """Hold the spans of a call against its access record."""
    inside = [*family.waits, *family.attempts]
    root = family.root
    assert root.start_time is not None
    assert root.end_time is not None
    for span in inside:
        assert span.context is not None
        assert root.context is not None
        assert span.context.trace_id == root.context.trace_id
        assert root.start_time <= (span.start_time or 0) <= (span.end_time or 0) <= root.end_time
    in_turn = sorted(inside, key=lambda span: (span.start_time or 0, span.end_time or 0))
    for earlier, later in pairwise(in_turn):
        assert (earlier.end_time or 0) <= (later.start_time or 0), "a wait and an attempt at the same time"
    assert len(family.attempts) == record.attempts
    assert sum(map(length_s, family.waits)) == pytest.approx(record.waited_ms / 1_000, abs=0.002)
    assert length_s(root) >= record.duration_ms / 1_000 - 0.002
    assert of(root).get("http.response.status_code", 0) == record.status
    assert of(root)["hivemind.rejected"] is record.rejected
    if record.usage is not None:
        told = of(family.attempts[-1])
        assert told["gen_ai.usage.output_tokens"] == record.usage.output
        total = record.usage.total - record.usage.output
        assert told.get("gen_ai.usage.input_tokens", 0) == total


async def test_a_wait_and_an_attempt_are_children_of_the_call() -> None:
    recorded = Recorded()
    async with standing(CAP_1 + "lane quick { }\nagent ci { lane quick }", traces=recorded.traces) as place:
        gate = trio.Event()
        place.provider.replies.append(ScriptedReply(hold=gate))
        async with trio.open_nursery() as callers:
            callers.start_soon(ask, place.url)
            await until(lambda: len(place.provider.seen) == 1)
            callers.start_soon(partial(ask, f"{place.url}/@ci", **{"x-hivemind-job": "job-7"}))
            await until(lambda: place.waiting == 1)
            gate.set()
        await until(lambda: len(recorded.families) == 2)

    first, second = (recorded.families[record.id] for record in place.records)
    assert (first.waits, len(first.attempts)) == ([], 1)
    [wait], [attempt] = second.waits, second.attempts
    assert of(wait) == {"hivemind.bound_by": "provider-concurrency"}
    assert (second.root.kind, wait.kind, attempt.kind) == (SpanKind.SERVER, SpanKind.INTERNAL, SpanKind.CLIENT)
    assert attempt.name == "chat gpt-x"
    said = dict(of(attempt))
    assert (
        said
        | {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "generic",
            "gen_ai.request.model": "gpt-x",
            "gen_ai.request.max_tokens": 9,
            "gen_ai.request.stream": False,
            "gen_ai.agent.name": "ci",
            "gen_ai.conversation.id": "job-7",
            "hivemind.provider": "sim",
            "hivemind.outcome": "succeeded",
            "http.response.status_code": 200,
        }
        == said
    )
    assert said["gen_ai.response.time_to_first_chunk"] >= 0
    assert "server.address" not in said  # it comes from a secret
    assert of(second.root)["hivemind.lane"] == "quick"
    for record in place.records:
        check(recorded.families[record.id], record)


async def test_an_attempt_tells_which_model_answered_and_why_it_stopped() -> None:
    recorded = Recorded()
    usage = b'"usage":{"prompt_tokens":3,"completion_tokens":9}'
    body = b'{"model":"gpt-x-2026","choices":[{"finish_reason":"length"}],%s}' % usage
    async with standing(CAP_1, traces=recorded.traces) as place:
        place.provider.replies.append(ScriptedReply(body=body))
        await ask(place.url)
        await until(lambda: len(recorded.families) == 1)

    said = of(recorded.families[place.records[0].id].attempts[0])
    assert (said["gen_ai.request.model"], said["gen_ai.response.model"]) == ("gpt-x", "gpt-x-2026")
    assert said["gen_ai.response.finish_reasons"] == ("length",)


async def test_an_attempt_names_its_server() -> None:
    recorded = Recorded()
    policy = (
        'hmp 1\nretry once { attempts 1 }\nprovider sim { api generic; base "http://127.0.0.1:9/under"; retry once }'
    )
    async with standing(policy, traces=recorded.traces) as place:
        await ask(place.url)
        await until(lambda: len(recorded.families) == 1)

    [attempt] = recorded.families[place.records[0].id].attempts
    said = dict(of(attempt))
    assert (said["server.address"], said["server.port"]) == ("127.0.0.1", 9)


async def test_spans_of_a_fleet_with_failures_agree_with_its_records() -> None:
    recorded = Recorded()
    policy = (
        "hmp 1\nprovider sim { api generic; base env(UPSTREAM); concurrency 3 }\n"
        "server { max-waiting 12 }\nretry default { attempts 4; backoff 1ms..20ms; ratio 100% }\n"
    )
    failing = attrs.evolve(INSTANT, resets=0.2, unavailable=0.2)
    async with standing(policy, traits=failing, traces=recorded.traces) as place:
        async with trio.open_nursery() as callers:
            for _ in range(40):
                callers.start_soon(ask, place.url)
        await until(lambda: len(recorded.families) == 40)

    assert len(place.records) == 40
    assert any(record.attempts > 1 for record in place.records)
    assert any(record.rejected for record in place.records)
    for record in place.records:
        check(recorded.families[record.id], record)
    failed = [one for family in recorded.families.values() for one in family.attempts if "error.type" in of(one)]
    assert failed
    assert all(one.status.status_code is StatusCode.ERROR for one in failed)


async def test_clients_that_leave_end_their_spans() -> None:
    recorded = Recorded()
    async with standing(CAP_1, traces=recorded.traces) as place, trio.open_nursery() as callers:
        place.provider.default = ScriptedReply(hold=trio.Event())
        callers.start_soon(ask, place.url)
        await until(lambda: len(place.provider.seen) == 1)
        callers.start_soon(ask, place.url)
        await until(lambda: place.waiting == 1)
        callers.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await until(lambda: len(recorded.families) == 2 and not place.inflight)

    by_attempts = sorted(place.records, key=lambda record: record.attempts)
    left_queue, left_answer = (recorded.families[record.id] for record in by_attempts)
    assert not left_queue.attempts
    assert [of(wait) for wait in left_queue.waits] == [{"hivemind.bound_by": "provider-concurrency"}]
    assert of(left_answer.attempts[0])["hivemind.outcome"] == "ignored"
    for record in place.records:
        check(recorded.families[record.id], record)


async def test_the_trace_of_the_agent_goes_on() -> None:
    recorded = Recorded()
    async with standing(CAP_1, traces=recorded.traces) as place:
        await ask(place.url, traceparent=f"00-{TRACE}-{SPAN}-01")
        await ask(place.url, traceparent=f"00-{TRACE}-{SPAN}-00")
        await ask(place.url, traceparent="00-nonsense")
        sent = place.sent(0)

    first, second = recorded.families.values()
    assert first.root.parent is not None
    assert (f"{first.root.parent.trace_id:032x}", f"{first.root.parent.span_id:016x}") == (TRACE, SPAN)
    assert second.root.parent is None, "the second was not sampled, the third has no trace"
    # The request is not changed.
    assert sent[b"traceparent"] == f"00-{TRACE}-{SPAN}-01".encode()


async def test_no_content_and_no_credential_is_in_a_span() -> None:
    recorded = Recorded()
    async with standing(CAP_1, traces=recorded.traces) as place:
        await ask(place.url, path=f"/v1/chat/completions?key={SECRET}")
        await ask(place.url, path="/v1/chat/completions", cookie=f"session={SECRET}")

    everything = "".join(span.to_json() for span in recorded.exporter.get_finished_spans())
    assert "chat gpt-x" in everything
    assert SECRET not in everything
    assert PROMPT not in everything


# ---- export ----


@attrs.define
class Collector:
    """An OTLP receiver on loopback."""

    url: str = ""
    bodies: list[bytes] = attrs.field(factory=list)
    heads: list[bytes] = attrs.field(factory=list)

    @property
    def spans(self) -> list[Any]:
        """All spans that have come."""
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, str]:
        """Whose they are."""
        [resource] = ExportTraceServiceRequest.FromString(self.bodies[0]).resource_spans
        return {one.key: one.value.string_value for one in resource.resource.attributes}

    async def converse(self, stream: trio.SocketStream) -> None:
        """Take requests, and answer each with 200."""
        data = b""
        async with stream:
            while True:
                while b"\r\n\r\n" not in data:
                    more = await stream.receive_some()
                    if not more:
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                while len(data) < int(lines[b"content-length"]):
                    data += await stream.receive_some()
                body, data = data[: int(lines[b"content-length"])], data[int(lines[b"content-length"]) :]
                self.heads.append(head)
                self.bodies.append(body)
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        collector.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.start_soon(trio.serve_listeners, collector.converse, listeners)
        yield collector
        nursery.cancel_scope.cancel()


@pytest.fixture
async def policy(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Path]:
    provider = SimulatedProvider(seed=7)
    await nursery.start(provider.run)
    path = tmp_path / "team.hmp"
    path.write_text(f'hmp 1\nprovider sim {{ api generic; base "{provider.url}"; concurrency 3 }}\n')
    yield path
    nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_collector_gets_the_spans_before_the_process_ends(policy: Path) -> None:
    async with collecting() as collector:
        # The interval is so long that only the shutdown can have sent them.
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=me",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
        }
        async with serving("--policy", policy, env=env) as proxy:
            [opened] = proxy.of("traces_opened")
            for _ in range(3):
                assert (await ask(proxy.url)).status_code == 200
            proxy.signal(signal.SIGTERM)
            assert await proxy.ended() == 0

    assert opened["endpoint"] == f"{collector.url}/v1/traces"
    assert sorted(span.name for span in collector.spans) == ["chat gpt-x"] * 3 + ["hivemind.call"] * 3
    assert b"x-tenant: me" in collector.heads[0]
    assert collector.heads[0].startswith(b"POST /v1/traces ")
    resource = collector.resource
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("hivemind-trio", "test")


@pytest.mark.slow
async def test_without_a_collector_calls_are_served_and_the_log_says_so(policy: Path) -> None:
    env = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://someone:secret@127.0.0.1:1/v1/traces",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_BSP_SCHEDULE_DELAY": "10",
    }
    async with serving("--policy", policy, env=env) as proxy:
        assert (await ask(proxy.url)).status_code == 200
        failed = await proxy.says("traces_not_exported")
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended() == 0

    assert failed["level"] == "warning"
    assert all(line.startswith("{") for line in proxy.lines), "the exporter writes to the log past it"
    assert "secret" not in "".join(proxy.lines)


@pytest.mark.slow
async def test_what_cannot_be_exported_is_told_and_calls_are_served(policy: Path) -> None:
    async with serving("--policy", policy, env={"OTEL_TRACES_EXPORTER": "console"}) as proxy:
        [told] = proxy.of("traces_unavailable")
        assert (await ask(proxy.url)).status_code == 200

    assert "OTEL_TRACES_EXPORTER=console" in told["error"]
    assert "otlp" in told["help"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/t"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/m"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_the_environment_asks_for_traces(environment: dict[str, str], expected: bool) -> None:
    assert wanted(environment) is expected


def test_the_log_shows_the_endpoint_without_credentials() -> None:
    assert endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://u:p@c:4318/x/"}) == "https://c:4318/x/v1/traces"
    assert endpoint({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/t?k=1"}) == "http://c/t"
    assert endpoint({}) == "http://localhost:4318/v1/traces"


async def _refused(environment: dict[str, str]) -> NoTraces:
    with pytest.raises(NoTraces) as refused:
        async with open_traces(environment, lambda _: None):
            pass
    return refused.value


async def test_another_protocol_and_a_missing_extra_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = await _refused({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "grpc" in str(refused)
    assert "http/protobuf" in refused.help

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    refused = await _refused({})
    assert "hivemind-trio[otel]" in refused.help


async def test_nothing_of_it_is_loaded_unless_it_is_asked_for(policy: Path) -> None:
    watched = "import sys; from hivemind_trio.serve import main; print([m for m in sys.modules if 'opentel' in m])"
    ended = await trio.run_process([sys.executable, "-c", watched], capture_stdout=True)
    assert json.loads(ended.stdout) == []
    status, _, said = await run("--policy", policy.parent / "none.hmp")
    assert status != 0
    assert "opentelemetry" not in said
