"""`python -m hivemind_trio` without its imports: a process that has made them forks itself for each test that asks.

A start of `serve` is 1.7 s of CPU, nearly all of it imports, and tests start it a thousand times in a run. While
`install` holds, `subprocess` has such commands forked by a process that has imported what `serve` does and nothing of a
test. The child is a process like any other: a child of the test, with its own pid, arguments, folder, environment and
standard streams, no other open file, and Python's own handling of signals. Started as ever, by exec, are

- commands of another form: the installed script, `python -c`, a shell, what the proxy itself starts;
- those for which Python's start-up reads other variables (`AT_START`): the first of these, then they are forked, too;
- those that ask `Popen` for more than a folder, an environment and streams, such as a session of their own;
- all within `as_ever()`, with `HIVEMIND_TEST_FORK=0`, and where the kernel is not Linux.

The parent of a forked process is the one that forked it. This one forks twice and its first child ends; Linux gives the
orphan to the nearest ancestor that takes such, which is the test, for that moment only.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import marshal
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

AT_START: Final = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "GLIBC_")
"""Prefixes of the variables that Python, its locale or its loader read before any code of ours runs."""

IMPORTED: Final = ("hivemind_trio.cli.main", "hivemind_trio.serve.command", "hivemind_trio.jobs")
POLICY: Final = 'hmp 1\nprovider p { api generic; base "http://127.0.0.1:1" }\n'

ROOT: Final = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER: Final = 36

_by_exec: Final = vars(subprocess)["_fork_exec"]


Wanted: TypeAlias = tuple[list[str], str, dict[str, str]]
"""A command that is to run, its folder and its environment."""


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are read before any code of ours runs."""
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


# Tests: who asks.


@attrs.define(eq=False)
class Forks:
    """The process that forks, as a test sees it."""

    process: subprocess.Popen[bytes]
    asking: socket.socket
    _turn: threading.Lock = attrs.field(factory=threading.Lock)

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> Forks:
        """Start it, with what such variables have to say before any code of ours runs."""
        ours, its = socket.socketpair()
        with its:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                cwd=ROOT,
                env={"PATH": os.defpath, **at_start(environment)},
            )
        return cls(process, ours)

    def fork(self, wanted: Wanted, streams: Sequence[int]) -> int:
        """Have a child of this process forked; its process id."""
        text = marshal.dumps(wanted)
        with self._turn, _taking_orphans():
            socket.send_fds(self.asking, [len(text).to_bytes(4, "big")], streams)
            self.asking.sendall(text)
            return int.from_bytes(_exactly(self.asking, 4), "big")

    def end(self) -> None:
        """Let it end, which it does when nobody can ask any more."""
        self.asking.close()
        self.process.wait()


class Starts:
    """Starter of the processes of a run of tests, in the place of `_fork_exec` in `subprocess`."""

    def __init__(self) -> None:
        self.forking: dict[frozenset[tuple[str, str]], Forks | None] = {}
        """By the variables that Python's start-up reads; None for those of one command so far."""
        self.modules = {"hivemind_trio"}
        """Modules that are forked when `python -m` is to run them."""
        self.forked = 0
        self.is_off = sys.platform != "linux" or os.environ.get("HIVEMIND_TEST_FORK") == "0"

    def __call__(self, *asked: Any) -> int:
        """Start what `Popen` asks for; its process id."""
        words, _, close_fds, kept, folder, variables, stdin, _, _, stdout, _, stderr, _, error_pipe, *more = asked
        words = [os.fsdecode(word) for word in words]
        # restore_signals, start_new_session, process_group, gid, gids, uid, umask, preexec_fn
        plain = (close_fds, kept, *more[:8]) == (True, (error_pipe,), True, False, -1, None, None, None, -1, None)
        folder = os.getcwd() if folder is None else os.fsdecode(folder)
        known = words[:2] == [sys.executable, "-m"] and not self.modules.isdisjoint(words[2:3])
        if self.is_off or not known or not plain or not os.path.isdir(folder):
            return int(_by_exec(*asked))
        environment = dict(os.environ)
        if variables is not None:
            environment = dict(os.fsdecode(one).split("=", 1) for one in variables)
        forks = self._forks(environment)
        if forks is None:
            return int(_by_exec(*asked))
        self.forked += 1
        streams = [own if given == -1 else given for own, given in enumerate((stdin, stdout, stderr))]
        return forks.fork((words, folder, environment), streams)

    def _forks(self, environment: Mapping[str, str]) -> Forks | None:
        key = frozenset(at_start(environment).items())
        if key not in self.forking and self.forking:
            self.forking[key] = None
        elif self.forking.get(key) is None:
            self.forking[key] = Forks.start(environment)
        return self.forking[key]

    def end(self) -> None:
        """End the processes that fork."""
        for forks in self.forking.values():
            if forks is not None:
                forks.end()
        self.forking.clear()


STARTS: Final = Starts()


def install() -> None:
    """Have the commands of this process's tests forked."""
    vars(subprocess)["_fork_exec"] = STARTS
    atexit.register(STARTS.end)


@contextmanager
def as_ever() -> Iterator[None]:
    """Start commands by exec, imports and all."""
    before, STARTS.is_off = STARTS.is_off, True
    try:
        yield
    finally:
        STARTS.is_off = before


@contextmanager
def _taking_orphans() -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _exactly(asking: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = asking.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


# The process that forks.


def children(asking: socket.socket) -> Wanted | None:
    """Fork whenever it is asked for; returns in each child, and at last, with None, in the process that forked them."""
    while True:
        size, streams, _, _ = socket.recv_fds(asking, 4, 3)
        if not size:
            return None
        wanted: Wanted = marshal.loads(_exactly(asking, int.from_bytes(size, "big")))
        read, write = os.pipe()
        first = os.fork()
        if not first:
            forked_by = os.getpid()
            child = os.fork()
            if not child:
                asking.detach()
                while os.getppid() == forked_by:
                    os.sched_yield()
                _become(wanted, streams)
                return wanted
            os.write(write, child.to_bytes(4, "big"))
            os._exit(0)
        os.waitpid(first, 0)  # from now on the child is the test's
        asking.sendall(os.read(read, 4))
        for number in (*streams, read, write):
            os.close(number)


def _become(wanted: Wanted, streams: Sequence[int]) -> None:
    """Take over what a process has from its start."""
    words, folder, environment = wanted
    for number, given in enumerate(streams):
        os.dup2(given, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    added = at_start(os.environ)  # the same as in `environment`, and what Python has set itself
    os.environ.clear()
    os.environ.update(environment | added)
    sys.orig_argv[:] = words
    sys.argv[1:] = words[3:]
    sys.path[0] = os.getcwd()
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = _stream(number, mode, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, mode: str, model: Any) -> io.TextIOWrapper:
    """Open a standard stream as Python does."""
    at_once = model.write_through
    binary: Any = open(number, f"{mode}b", buffering=0 if at_once else -1, closefd=False)  # noqa: SIM115 - until the end
    getattr(binary, "raw", binary).name = model.name
    by_line = not at_once and (number == 2 or binary.isatty())
    text = io.TextIOWrapper(
        binary, model.encoding, model.errors, newline="\n", line_buffering=by_line, write_through=at_once
    )
    vars(text)["mode"] = mode
    return text


def main() -> None:
    """Import, then fork; in each child, run its command."""
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    for name in IMPORTED:
        importlib.import_module(name)
    from hivemind_trio.policy import MemoryFiles, check

    assert check("p.hmp", MemoryFiles({"p.hmp": POLICY})).program is not None
    assert len(os.listdir("/proc/self/task")) == 1, "only a process without threads can fork"
    gc.collect()
    gc.freeze()
    wanted = children(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        signal.signal(signal.SIGINT, interrupted)
        runpy.run_module(wanted[0][2], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
