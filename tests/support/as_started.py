"""Shows as JSON what a process has from its start, apart from its process id: what a forked one must have as well."""

from __future__ import annotations

import json
import locale
import os
import signal
import sys
import threading
from typing import Any


def shown() -> dict[str, object]:
    """Return it, name by name."""
    streams: list[Any] = [sys.stdin, sys.stdout, sys.stderr]
    return {
        "arguments": [sys.argv, sys.orig_argv],
        "environment": dict(os.environ),
        "files": sorted(os.listdir("/proc/self/fd"))[:-1],  # the last is that of the folder itself
        "flags": str(sys.flags),
        "folder": os.getcwd(),
        "group and session": [os.getpgrp(), os.getsid(0)],
        "limits": open("/proc/self/limits").read(),
        "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding()],
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "modules' path": sys.path,
        "name": __name__,
        "niceness": os.nice(0),
        "parent": os.getppid(),
        "signals": {int(number): str(signal.getsignal(number)).split(" at ")[0] for number in signal.valid_signals()},
        "streams": [
            [one.encoding, one.errors, one.line_buffering, one.write_through, one.isatty(), one.name, one.mode]
            for one in streams
        ],
        "the same streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "threads": [threading.active_count(), len(os.listdir("/proc/self/task"))],
        "umask": os.umask(0),
    }


if __name__ == "__main__":
    print(json.dumps(shown(), default=str))
    sys.stdout.flush()
    print(sys.stdin.read(), end="", file=sys.stderr)
    sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
