"""Run the fuzz targets without any fuzzer: `python -m fuzz.run [--seconds N] [--seed N] [--inputs N] [target ...]`.

Each target's seeds are cut, glued, repeated and spoilt by a seeded generator until the time is over. Nothing guides
the search, so it finds what is near the seeds; README.md says how to search longer and guided. What fails is written
out, is shown as the command that runs it again, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, Protocol

TARGETS: Final = ("door_http", "nodes", "policy_text")
OPTIONAL: Final = {"policy_regions": "z3"}
"""Targets that compare with something that is no dependency -> what they import; run where it is there."""

EDITS_MAX: Final = 8
INPUT_BYTES_MAX: Final = 4_096

_TOKENS: Final = (
    b"{", b"}", b"[", b"]", b"(", b")", b'"', b"\\", b"#", b";", b",", b"=", b"..", b"/", b":", b"\n", b"\r\n", b"\0",
    b"\xff", b"\x1b", "\u202e".encode(), b"0", b"99999999999999999999", b"-1", b" ", b"\t", b"%", b"$",
)  # fmt: skip
"""What formats are made of, and what they stumble over."""


class Target(Protocol):
    """A module of this folder."""

    @property
    def SEEDS(self) -> Sequence[bytes]:  # noqa: N802 - a constant of the module
        """Inputs that the search begins with."""
        ...

    def one_input(self, data: bytes, /) -> object:
        """Raises if an invariant does not hold."""
        ...


def mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds after a few edits, some with a piece of another."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, EDITS_MAX)):
        at = random.randint(0, len(data))
        length = random.choice((1, 1, 2, 4, 16))
        match random.randrange(6):
            case 0:
                del data[at : at + length]
            case 1:
                data[at:at] = random.choice(_TOKENS)
            case 2:
                data[at : at + length] = random.randbytes(min(length, 4))
            case 3:
                data[at:at] = data[at : at + length] * random.randint(1, 4)
            case 4:
                other = random.choice(seeds)
                begin = random.randint(0, len(other))
                data[at:at] = other[begin : begin + random.randint(1, 64)]
            case _:
                data[at : at + 1] = random.choice(_TOKENS)
    return bytes(data[:INPUT_BYTES_MAX])


def load(name: str) -> Target:
    """The target of that name."""
    target: Target = importlib.import_module(f"fuzz.{name}")
    return target


def search(target: Target, random: Random, *, seconds: float, inputs: int | None = None) -> tuple[int, bytes | None]:
    """Try inputs until the time or their number is used up.

    Returns:
        How many were tried; and the first that failed, whose exception has been printed.
    """
    until = time.perf_counter() + seconds
    tried = 0
    queue = list(target.SEEDS)
    while time.perf_counter() < until and (inputs is None or tried < inputs):
        data = queue.pop(0) if queue else mutated(random, target.SEEDS)
        tried += 1
        try:
            target.one_input(data)
        except Exception:  # noqa: BLE001 - whatever an input brings out is what we look for
            traceback.print_exc()
            return tried, data
    return tried, None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if anything failed."""
    known = (*TARGETS, *OPTIONAL)
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--seconds", type=float, default=5, help="for each target; default: %(default)s")
    parser.add_argument("--inputs", type=int, help="at most so many for each target")
    parser.add_argument("--seed", type=int, default=1, help="of the generator; default: %(default)s")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.targets if name not in known]
    if unknown:
        parser.error(f"no target {unknown[0]}; there are {', '.join(known)}")
    missing = {name: module for name, module in OPTIONAL.items() if importlib.util.find_spec(module) is None}
    for name in missing:
        if name in asked.targets:
            parser.error(f"{name} needs {missing[name]}; fuzz/README.md says where to have it from")

    status = 0
    for name, module in () if asked.targets else missing.items():
        print(f"{name}: left out, {module} is missing")
    for name in asked.targets or [name for name in known if name not in missing]:
        tried, failed = search(load(name), Random(asked.seed), seconds=asked.seconds, inputs=asked.inputs)
        if failed is None:
            print(f"{name}: {tried} inputs, seed {asked.seed}: all invariants hold")
            continue
        path = Path(f"{name}.failed")
        path.write_bytes(failed)
        print(f"{name}: input {tried} of seed {asked.seed} fails: python -m fuzz.{name} {path}")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
