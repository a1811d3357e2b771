"""What we lean on in Hypercorn that Hypercorn does not promise: why `pyproject.toml` pins its minor version.

When this fails after an upgrade, read `hivemind_trio/listen/hypercorn_worker.py`, `http1.py` and
`http2.py` against the new source; then move the pin.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypercorn.config import Config
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.protocol.h11 import H2ProtocolAssumedError, H11Protocol, H11WSConnection
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import EventWrapper, WorkerContext


def test_the_minor_version_is_the_one_that_was_read() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert "hypercorn>=0.18,<0.19" in project["project"]["dependencies"]
    assert importlib.metadata.version("hypercorn").startswith("0.18.")


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        # _hypercorn.Connection passes these, by position
        (TCPServer.__init__, "app config context state stream"),
        # _http1.Http1 and _http2.Http2 are made like this, by position
        (
            H11Protocol.__init__,
            "app config context task_group connection_state ssl client server send",
        ),
        (H2Protocol.__init__, "app config context task_group connection_state ssl client server send"),
        # _http1.Http1._switch hands a WebSocket handshake to it, and overrides `handle`
        (H11Protocol._create_stream, "request"),
        (H11Protocol.handle, "event"),
        # _http2.Http2 overrides these and calls them
        (H2Protocol.initiate, "headers settings"),
        (H2Protocol._handle_events, "events"),
        (H2Protocol._window_updated, "stream_id"),
        (H2Protocol._flush, ""),
        # _http2.Tasks stands in for it: a stream's bound `app_send` comes in, what it calls as `app_put` goes out
        (TaskGroup.spawn_app, "app config scope send"),
        (TaskGroup.spawn, "func args"),
        (WorkerContext.__init__, "max_requests"),
        (StreamBuffer.close, ""),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_what_we_override_or_call_takes_what_we_think(function: Callable[..., object], parameters: str) -> None:
    assert list(inspect.signature(function).parameters)[1:] == parameters.split()


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (H11Protocol.__init__, "connection stream client server can_read"),
        (H11Protocol._create_stream, "H11WSConnection WSStream"),
        (H11WSConnection.__init__, "trailing_data"),
        (H2Protocol.__init__, "connection streams stream_buffers task_group has_data"),
        (H2Protocol._handle_events, "DataReceived StreamReset _close_stream"),
        (H2Protocol._send_data, "ProtocolError close"),
        (HTTPStream.handle, "spawn_app app_send app_put scope"),
        (HTTPStream.app_send, "closed state"),
        (WSStream.handle, "spawn_app app_send app_put closed"),
        (TaskGroup.spawn, "_nursery start_soon"),
        (EventWrapper.__init__, "_event"),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_the_names_we_reach_for_are_still_used_there(function: Callable[..., object], names: str) -> None:
    code = function.__code__
    assert set(names.split()) <= {*code.co_names, *code.co_varnames, *code.co_freevars}


def test_the_settings_we_make_exist() -> None:
    for name in (
        "include_date_header",
        "include_server_header",
        "accesslog",
        "errorlog",
        "h11_max_incomplete_size",
        "h2_max_header_list_size",
        "h2_max_concurrent_streams",
        "keep_alive_max_requests",
    ):
        assert hasattr(Config, name)


def test_the_states_and_errors_mean_what_we_think() -> None:
    assert ASGIHTTPState.RESPONSE.name == "RESPONSE"
    assert H2ProtocolAssumedError(b"x").data == b"x"
