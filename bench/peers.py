"""Installs what the overhead bench compares us with: `python -m bench.peers FOLDER`.

Each gets an environment of its own in FOLDER, for they need other versions than we do, and each other's. What cannot be
installed is said with the reason, and the bench runs without it; the exit code is then 1. nginx is the system's: it is
used if it is on PATH (`apt-get install nginx-light`).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import Distribution
from json import loads
from pathlib import Path
from typing import Final

PYTHON: Final[Mapping[str, tuple[str, str]]] = {
    "hivemind-scheduler": ("hivemind-scheduler==0.2.0", "hivemind-scheduler"),
    "litellm": ("litellm[proxy]==1.106.2", "litellm"),
}
"""Folder -> what pip is asked for, and the name of the distribution."""

NODE: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    # With the newest of Hono's servers (1.19) every stream through the gateway ends in a 500: "immutable".
    "portkey": (("@portkey-ai/gateway@1.15.2", "@hono/node-server@1.11.1"), "@portkey-ai/gateway")
}
"""Folder -> what npm is asked for, and the name of the package."""


def python_of(folder: Path, name: str) -> Path:
    """The interpreter of a peer that is written in Python."""
    return folder / name / "bin" / "python"


def package_of(folder: Path, name: str) -> Path:
    """The package of a peer that is written in JavaScript."""
    return folder / name / "node_modules" / NODE[name][1]


def version_of(folder: Path | None, name: str) -> str | None:
    """What is installed in FOLDER; None: nothing."""
    if folder is None:
        return None
    if name in NODE:
        about = package_of(folder, name) / "package.json"
        return str(loads(about.read_text("utf-8"))["version"]) if about.exists() else None
    libraries = [str(path) for path in (folder / name).glob("lib/python*/site-packages")]
    found = next(iter(Distribution.discover(name=PYTHON[name][1], path=libraries)), None)
    return found.version if found is not None and python_of(folder, name).exists() else None


def _with_pip(folder: Path, name: str) -> None:
    _run([sys.executable, "-m", "venv", str(folder / name)])
    _run([str(python_of(folder, name)), "-m", "pip", "install", "--quiet", PYTHON[name][0]])


def _with_npm(folder: Path, name: str) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise OSError("node and npm are not on PATH")
    # Portkey's only script patches a package that the gateway itself does not ship. Peers' wishes would bring a second
    # server along, which would be the one that is used.
    quietly = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps"]
    _run([npm, "install", *quietly, "--prefix", str(folder / name), *NODE[name][0]])


def _run(command: list[str]) -> None:
    """OSError with the last thing that it said, if it did not end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise OSError(said[-1].strip() if said else f"`{command[0]}` ended with {done.returncode}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Install, and say what there is and how to use it."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder: Path = parser.parse_args(arguments).folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    missing = 0
    ways: list[tuple[str, Callable[[Path, str], None]]] = [
        *((name, _with_pip) for name in PYTHON),
        *((name, _with_npm) for name in NODE),
    ]
    for name, install in ways:
        try:
            if version_of(folder, name) is None:
                print(f"{name}: installing", flush=True)
                install(folder, name)
            print(f"{name}: {version_of(folder, name)}", flush=True)
        except OSError as error:
            missing += 1
            print(f"{name}: not installed: {error}", flush=True)
    nginx = shutil.which("nginx")
    missing += nginx is None
    print(f"nginx: {nginx or 'not on PATH; apt-get install nginx-light'}")
    print(f"\npython -m bench.overhead --peers {folder}")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
