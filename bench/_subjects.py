"""What the overhead bench measures: each a process of its own on the measured core."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import final

import attrs

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
  access_log off; client_body_buffer_size 64k; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
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


@final
@attrs.frozen(kw_only=True)
class Subject:
    """Something that answers calls on a port."""

    name: str
    port: int
    process: subprocess.Popen[str] | None = None
    """None: the provider itself, without a proxy."""

    def cpu_ns(self) -> int:
        """CPU time of all its threads since it began."""
        if self.process is None:
            return 0
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

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


@contextmanager
def spawned(command: Sequence[str], core: int | None, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A child on one core, ended on the way out."""

    def pin() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})

    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
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


def free_port() -> int:
    """A port that was free a moment ago, for programs that cannot be asked which one they got."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(port: int, child: subprocess.Popen[str]) -> None:
    """Until something listens there; at most 20 seconds."""
    for _ in range(200):
        assert child.poll() is None, f"{child.args!r} ended with status {child.returncode}"
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"{child.args!r} does not listen on {port}")


@contextmanager
def ours(upstream: int, core: int | None, *, cap: int = 4000, name: str = "hivemind-trio") -> Iterator[Subject]:
    """Our proxy, with so many slots."""
    command = [sys.executable, "-m", "bench._proxy", f"http://127.0.0.1:{upstream}", str(cap)]
    with spawned(command, core) as child:
        yield Subject(name=name, port=port_of(child), process=child)


@contextmanager
def nginx(upstream: int, core: int | None) -> Iterator[Subject]:
    """nginx, one worker, no access log, nothing buffered."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        conf = Path(folder, "nginx.conf")
        conf.write_text(NGINX.format(folder=folder, upstream=upstream, port=port))
        with spawned(["nginx", "-c", str(conf), "-p", folder, "-e", f"{folder}/error.log"], core) as child:
            wait_for(port, child)
            yield Subject(name="nginx", port=port, process=child)


@contextmanager
def hivemind(upstream: int, core: int | None, python: str) -> Iterator[Subject]:
    """hivemind-scheduler, its rate cap lifted, logging warnings only."""
    port = free_port()
    command = [python, "-c", HIVEMIND_UNCAPPED, f"http://127.0.0.1:{upstream}", str(port)]
    with tempfile.TemporaryDirectory() as folder, spawned(command, core, HOME=folder) as child:
        wait_for(port, child)
        yield Subject(name="hivemind-scheduler 0.2.0", port=port, process=child)


@contextmanager
def subjects(
    upstream: int, core: int | None, *, hivemind_python: str | None
) -> Iterator[tuple[list[Subject], Mapping[str, str]]]:
    """All that can be had here, and why the others cannot."""
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        there = [Subject(name="direct", port=upstream), stack.enter_context(ours(upstream, core))]
        if shutil.which("nginx"):
            there.append(stack.enter_context(nginx(upstream, core)))
        else:
            absent["nginx"] = "not on PATH"
        if hivemind_python:
            there.append(stack.enter_context(hivemind(upstream, core, hivemind_python)))
        else:
            absent["hivemind-scheduler 0.2.0"] = "not given; see bench/peers.py"
        yield there, absent
