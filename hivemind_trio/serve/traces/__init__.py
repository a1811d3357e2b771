"""Traces of calls for OpenTelemetry, as its environment variables ask. Needs the extra `otel`."""

from .exporting import NoTraces as NoTraces
from .exporting import endpoint as endpoint
from .exporting import open_traces as open_traces
from .exporting import wanted as wanted
from .spans import CallTraces as CallTraces
