"""`python -m hivemind_trio` and the `hivemind-trio` command."""

from __future__ import annotations

import atexit
import signal
import sys
from collections.abc import Sequence


def main() -> None:
    """Run the command line."""
    if _command(sys.argv[1:]) == "serve":
        # SIGHUP asks for a reload. The imports below take a second on a busy machine, and no policy is read before.
        signal.signal(signal.SIGHUP, _ignore)
        atexit.register(signal.signal, signal.SIGHUP, signal.SIG_IGN)  # Python takes handlers back before its end
    from .cli import run

    run()


def _command(arguments: Sequence[str]) -> str:
    """Return the name of the subcommand."""
    pairs = zip(["", *arguments], arguments, strict=False)
    return next((one for before, one in pairs if one[:1] != "-" and before != "--allow-include"), "")


def _ignore(*_: object) -> None:
    """Do nothing. Unlike SIG_IGN, a handler is not inherited by the programs that the process starts."""


if __name__ == "__main__":
    main()
