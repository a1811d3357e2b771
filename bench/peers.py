"""Installs what the overhead bench compares us with: `python -m bench.peers FOLDER`.

Makes a virtual environment of its own in FOLDER, because hivemind-scheduler needs other versions than we do, and prints
the flag to give to `bench.overhead`. nginx is the system's: it is used if it is on PATH.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HIVEMIND = "hivemind-scheduler==0.2.0"


def main() -> None:
    """Install and say how to use it."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", HIVEMIND], check=True)
    print(f"python -m bench.overhead --hivemind {python}")


if __name__ == "__main__":
    main()
