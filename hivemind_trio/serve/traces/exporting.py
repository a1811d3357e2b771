"""Export of traces over OTLP, as the standard `OTEL_*` variables ask for it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

import trio

from hivemind_trio import __version__

from .spans import CallTraces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
USUAL_ENDPOINT: Final = "http://localhost:4318"
PROTOCOL: Final = "http/protobuf"
INSTALL: Final = "`pip install 'hivemind-trio[otel]'`, or set OTEL_TRACES_EXPORTER=none"
CLOSE_S: Final = 5
"""Longest time for the last spans at the end of the process."""
ERROR_MAX: Final = 300
"""Characters of the exporter's words in the log."""


@final
class NoTraces(Exception):  # noqa: N818 - calls are served without them
    """Traces are asked for and cannot be exported; `help` says what to do."""

    def __init__(self, message: str, help_text: str) -> None:
        super().__init__(message)
        self.help = help_text


def wanted(environment: Mapping[str, str]) -> bool:
    """Return True if the environment asks for traces: by an endpoint, or by an exporter."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter:
        return exporter != "none"
    return bool(environment.get(TRACES_ENDPOINT) or environment.get(ENDPOINT))


def endpoint(environment: Mapping[str, str]) -> str:
    """Return the URL that spans go to, as the log shows it: without credentials and query."""
    url = environment.get(TRACES_ENDPOINT) or (environment.get(ENDPOINT) or USUAL_ENDPOINT).rstrip("/") + "/v1/traces"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@asynccontextmanager
async def open_traces(environment: Mapping[str, str], trouble: Callable[[str], None]) -> AsyncIterator[CallTraces]:
    """Export traces within the context. Leaving it sends what is left, for some seconds at most.

    Args:
        environment: Variables that say how; the exporter reads its own from the process.
        trouble: Told, on the event loop, why spans could not be exported.

    Raises:
        NoTraces: They cannot be exported.
    """
    provider = _provider(environment)
    handler = _ToEventLoop(trouble, trio.lowlevel.current_trio_token())
    log = logging.getLogger("opentelemetry")
    propagates = log.propagate
    log.addHandler(handler)
    log.propagate = False  # the exporter's own lines would stand between those of the log
    try:
        yield CallTraces(provider.get_tracer("hivemind_trio", __version__), time.time_ns)
    finally:
        # It waits for the network, and for its own retries.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S):
            await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)
        log.removeHandler(handler)
        log.propagate = propagates


def _provider(environment: Mapping[str, str]) -> TracerProvider:
    """Make the provider that exports spans in batches, in a thread of its own.

    Raises:
        NoTraces: It cannot be made.
    """
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter not in ("", "otlp"):
        raise NoTraces(f"OTEL_TRACES_EXPORTER={exporter}: the proxy exports by OTLP", "write otlp, or none")
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol and protocol != PROTOCOL:
        raise NoTraces(
            f"the OTLP protocol {protocol} is not spoken here",
            f"set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL={PROTOCOL}, and the port of the collector for it, usually 4318",
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise NoTraces(f"traces need {missing.name}", INSTALL) from None
    resource = Resource.create({"service.name": "hivemind-trio", "service.version": __version__})
    try:
        provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise NoTraces(f"{error}", "correct the OTEL_* variables, or set OTEL_TRACES_EXPORTER=none") from None
    return provider


@final
class _ToEventLoop(logging.Handler):
    """Passes warnings of the exporter's threads on to the event loop."""

    def __init__(self, trouble: Callable[[str], None], token: trio.lowlevel.TrioToken) -> None:
        super().__init__(logging.WARNING)
        self._trouble = trouble
        self._token = token

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on one line."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._trouble, record.getMessage()[:ERROR_MAX])
