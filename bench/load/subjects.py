"""What the overhead bench measures: each a process of its own on the measured core."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeAlias, final

import attrs

from bench.peers import package_of, python_of, version_of

# Its rate limiter allows 60 calls a minute to any host that it does not know, and no flag changes that.
HIVEMIND_UNCAPPED = """\
import sys
from hivemind.scheduler.rate_limiter import RateLimiter
RateLimiter.configure_from_profile = lambda self, profile: None
from hivemind.__main__ import main
sys.argv[1:] = ["--log-level", "WARNING", "proxy", "--port", sys.argv[2], "--upstream", sys.argv[1],
                "--max-concurrency", "2000"]
main()
"""

NGINX = """\
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_buffer_size 1m; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream provider {{ server 127.0.0.1:{upstream}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    keepalive_requests 1000000;
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""

# Nothing that could leave the machine or be written anywhere, no key to check, no retries, no cooldown: what is left is
# the way of a call. Its list of prices would otherwise be fetched.
LITELLM: Final = {
    "litellm_settings": {"num_retries": 0, "request_timeout": 600, "telemetry": False, "set_verbose": False},
    "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    "general_settings": {"disable_spend_logs": True, "disable_error_logs": True},
}
LITELLM_ENVIRONMENT: Final = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "NO_PROXY": "127.0.0.1",
}


@final
@attrs.frozen(kw_only=True)
class Subject:
    """Something that answers calls on a port."""

    name: str
    port: int
    process: subprocess.Popen[str] | None = None
    """None: the provider itself, without a proxy."""
    headers: Sequence[tuple[str, str]] = ()
    """Which it needs to be told where to send a call."""

    def cpu_ns(self) -> int:
        """CPU time of all its threads since it began, of those that have ended too."""
        if self.process is None:
            return 0
        # As clock_getcpuclockid makes it of a process's number, which Python does not offer.
        return time.clock_gettime_ns((~self.process.pid << 3) | 2)

    def resident_bytes(self) -> int:
        """Resident memory."""
        assert self.process is not None
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def counted(self) -> tuple[int, int]:
        """End the counting of Python calls that SIGUSR1 began: Python's and C's."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGUSR2)
        python, c = self.process.stdout.readline().split()
        return int(python), int(c)


Opened: TypeAlias = AbstractContextManager[Subject]


@final
@attrs.frozen(kw_only=True)
class Kind:
    """A program that can be started as often as it is measured."""

    name: str
    version: str
    open: Callable[[], Opened]
    open_queueing: Callable[[], Opened]
    """With room for one call upstream and for all others in a queue, if it has one: else as it is."""


@contextmanager
def spawned(command: Sequence[str], core: int | None, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A child on one core that prints its port, ended on the way out."""
    with _child(command, core, subprocess.PIPE, environment) as child:
        yield child


@contextmanager
def _quiet(command: Sequence[str], core: int | None, port: int, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A child on one core that listens there before long, and whose words nobody reads, ended on the way out."""
    with _child(command, core, subprocess.DEVNULL, environment) as child:
        _wait_for(port, child)
        yield child


@contextmanager
def _child(
    command: Sequence[str], core: int | None, out: int, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    def pin() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})

    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=None if out == subprocess.PIPE else subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=pin,  # a thread that the child starts inherits it, which setting it afterwards would not do
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def port_of(child: subprocess.Popen[str]) -> int:
    """The port that a child of ours prints when it listens."""
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line.strip().isdigit(), f"{child.args!r} said {line!r} instead of its port"
    return int(line)


def _free_port() -> int:
    """A port that was free a moment ago, for programs that cannot be asked which one they got."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _wait_for(port: int, child: subprocess.Popen[str]) -> None:
    """Until something listens there; at most five minutes, for LiteLLM takes two on a busy machine."""
    for _ in range(3000):
        if child.poll() is not None:
            raise OSError(f"{child.args!r} ended with status {child.returncode}")
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise OSError(f"{child.args!r} does not listen on {port}")


def ours(upstream: int, core: int | None) -> Kind:
    """Our proxy, with slots for everybody."""

    def opened(cap: int) -> Callable[[], Opened]:
        @contextmanager
        def open_() -> Iterator[Subject]:
            command = [sys.executable, "-m", "bench.load.proxy", f"http://127.0.0.1:{upstream}", str(cap)]
            with spawned(command, core) as child:
                yield Subject(name="hivemind-trio", port=port_of(child), process=child)

        return open_

    return Kind(name="hivemind-trio", version=version("hivemind-trio"), open=opened(4000), open_queueing=opened(1))


def _nginx(upstream: int, core: int | None) -> Kind:
    """nginx, one worker, no access log, nothing buffered."""

    @contextmanager
    def open_() -> Iterator[Subject]:
        with tempfile.TemporaryDirectory() as folder:
            port = _free_port()
            conf = Path(folder, "nginx.conf")
            conf.write_text(NGINX.format(folder=folder, upstream=upstream, port=port))
            with _quiet(["nginx", "-c", str(conf), "-p", folder, "-e", f"{folder}/error.log"], core, port) as child:
                yield Subject(name="nginx", port=port, process=child)

    said = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=False).stderr
    return Kind(name="nginx", version=said.strip().rpartition("/")[2], open=open_, open_queueing=open_)


def _hivemind(upstream: int, core: int | None, folder: Path, number: str) -> Kind:
    """hivemind-scheduler, its rate cap lifted, logging warnings only."""

    @contextmanager
    def open_() -> Iterator[Subject]:
        port = _free_port()
        python = str(python_of(folder, "hivemind-scheduler"))
        command = [python, "-c", HIVEMIND_UNCAPPED, f"http://127.0.0.1:{upstream}", str(port)]
        with tempfile.TemporaryDirectory() as home, _quiet(command, core, port, HOME=home) as child:
            yield Subject(name="hivemind-scheduler", port=port, process=child)

    return Kind(name="hivemind-scheduler", version=number, open=open_, open_queueing=open_)


def _litellm(upstream: int, core: int | None, folder: Path, number: str, models: Sequence[str]) -> Kind:
    """LiteLLM's proxy, one worker, no database, no key, every model by its name."""
    there = {"api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "bench"}
    named = [{"model_name": name, "litellm_params": {"model": f"openai/{name}", **there}} for name in models]

    @contextmanager
    def open_() -> Iterator[Subject]:
        port = _free_port()
        with tempfile.TemporaryDirectory() as home:
            config = Path(home, "config.yaml")
            config.write_text(json.dumps({"model_list": named, **LITELLM}))  # JSON is YAML
            command = [
                *(str(python_of(folder, "litellm").with_name("litellm")), "--config", str(config)),
                *("--host", "127.0.0.1", "--port", str(port), "--num_workers", "1", "--telemetry", "False"),
            ]
            with _quiet(command, core, port, HOME=home, **LITELLM_ENVIRONMENT) as child:
                yield Subject(name="LiteLLM", port=port, process=child)

    return Kind(name="LiteLLM", version=number, open=open_, open_queueing=open_)


def _portkey(upstream: int, core: int | None, folder: Path, number: str) -> Kind:
    """Portkey's gateway on Node; each call says where it goes."""
    headers = [("x-portkey-provider", "openai"), ("x-portkey-custom-host", f"http://127.0.0.1:{upstream}/v1")]

    @contextmanager
    def open_() -> Iterator[Subject]:
        port = _free_port()
        script = package_of(folder, "portkey") / "build" / "start-server.js"
        command = ["node", str(script), f"--port={port}", "--headless"]
        with (
            tempfile.TemporaryDirectory() as home,
            _quiet(command, core, port, HOME=home, NODE_ENV="production") as node,
        ):
            yield Subject(name="Portkey", port=port, process=node, headers=headers)

    return Kind(name="Portkey", version=number, open=open_, open_queueing=open_)


def kinds(
    upstream: int, core: int | None, *, peers: Path | None, models: Sequence[str]
) -> tuple[list[Kind], Mapping[str, str]]:
    """All that can be had here, ours first; and why the others cannot."""
    there, absent = [ours(upstream, core)], {}
    if shutil.which("nginx"):
        there.append(_nginx(upstream, core))
    else:
        absent["nginx"] = "not on PATH (`apt-get install nginx-light`)"
    for name in ("hivemind-scheduler", "litellm", "portkey"):
        number = version_of(peers, name)
        if peers is None or number is None:
            absent[name] = "not installed (`python -m bench.peers FOLDER`, then `--peers FOLDER`)"
        elif name == "hivemind-scheduler":
            there.append(_hivemind(upstream, core, peers, number))
        elif name == "litellm":
            there.append(_litellm(upstream, core, peers, number, models))
        else:
            there.append(_portkey(upstream, core, peers, number))
    return there, absent


def direct(upstream: int) -> Subject:
    """The provider itself."""
    return Subject(name="direct", port=upstream)
