"""Compiled methods of attrs classes, kept for all processes of a test run.

attrs writes the methods of each class at its import and compiles them, and Python keeps no bytecode of those: half of
the CPU of `hivemind-trio serve` until it serves, a thousand times in a run. `python -m tests.support.kept_code`, in an
environment made for one run, imports the package, keeps what attrs has compiled, and lets each process of that
environment look there first. What is not found is compiled as ever.
"""

from __future__ import annotations

import importlib
import marshal
import pkgutil
import sysconfig
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

KEPT: Final = "hivemind_kept_code"
"""Name of the module that every process of the environment imports, and of the file that it reads."""

LOOK: Final = '''\
"""Written by tests/support/kept_code.py."""
import hashlib, marshal, pathlib
import attr._make
kept = marshal.loads(pathlib.Path(__file__).with_suffix(".bin").read_bytes())
def compile_(source, filename, mode, *rest, **more):
    if mode == "exec" and not rest and not more:
        found = kept.get(hashlib.blake2b(f"{filename}\\n{source}".encode()).digest())
        if found is not None:
            return marshal.loads(found)
    return compile(source, filename, mode, *rest, **more)
attr._make.compile = compile_
'''


def compiled_by_attrs(room: str) -> dict[bytes, bytes]:
    """Import every module of a package; what attrs compiles for it, by a digest of its text and of its file's name."""
    kept: dict[bytes, bytes] = {}

    def compiling(source: str, filename: str, mode: str, *rest: Any, **more: Any) -> Any:
        code = compile(source, filename, mode, *rest, **more)
        if f" {room}." in filename and mode == "exec" and not rest and not more:
            kept[blake2b(f"{filename}\n{source}".encode()).digest()] = marshal.dumps(code)
        return code

    compiler = vars(importlib.import_module("attr._make"))
    compiler["compile"] = compiling
    try:
        for module in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    finally:
        del compiler["compile"]
    return kept


def keep(folder: Path, room: str = "hivemind_trio") -> int:
    """Keep it in a folder for packages; the number of classes."""
    kept = compiled_by_attrs(room)
    (folder / f"{KEPT}.bin").write_bytes(marshal.dumps(kept))
    (folder / f"{KEPT}.py").write_text(LOOK)
    (folder / f"{KEPT}.pth").write_text(f"import {KEPT}\n")
    return len(kept)


if __name__ == "__main__":
    keep(Path(sysconfig.get_path("purelib")))
