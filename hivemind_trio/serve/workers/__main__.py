"""Process of one worker; the supervisor starts it with the descriptors that it passes."""

from __future__ import annotations

import sys

from .worker import WorkerFiles, main

if __name__ == "__main__":
    channel, connections, board, ledger = map(int, sys.argv[1:])
    main(WorkerFiles(channel=channel, connections=connections, board=board, ledger=ledger))
