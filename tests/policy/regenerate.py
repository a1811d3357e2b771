"""The cases under `diagnostics/`, and how they are written anew: `python -m tests.policy.regenerate`.

A case is `HMxxx_what.hmp`, or a folder of that name whose first file is `team.hmp`; beside it stands `HMxxx_what.txt`,
what a user is shown. What no text file can hold, bytes that are no text and secrets that a machine lacks, is in the
tables below. Read the difference before it is committed: the point of these files is that somebody did.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import attrs

from hivemind_trio.model import SecretRef
from hivemind_trio.policy import (
    Checked,
    MemoryFiles,
    Run,
    SecretState,
    check,
    check_bases,
    check_keys,
    check_secrets,
    render,
    run_tests,
    unexercised,
    with_findings,
    with_tests,
)
from hivemind_trio.policy_tests import BUDGET_S, rehearse

FOLDER = Path(__file__).parent / "diagnostics"

BYTES: Mapping[str, bytes | None] = {
    "HM007_missing": None,
    "HM007_utf16": b"\xff\xfep\0r\0o\0v\0i\0d\0e\0r\0",
    "HM007_nul": b"provider anthropic {\0}\n",
    "HM007_not_utf8": b'rule no { deny "\xe9cole" }\nprovider anthropic { }\n',
    "HM007_too_large": b"# " + b"-" * (4 << 20) + b"\n",
}
"""What `team.hmp` holds; None: there is no such file."""

SECRETS: Mapping[str, tuple[str, SecretState]] = {
    "HM209_env": ("provider anthropic { key env(ANTHROPIC_API_KEY) }\n", SecretState.UNSET),
    "HM209_file": ('provider anthropic { key file("keys/anthropic") }\n', SecretState.UNSET),
    "HM209_unreadable": (
        'agent ci { token file("/run/secrets/ci") }\nprovider anthropic { }\n',
        SecretState.UNREADABLE,
    ),
    "HM209_malformed": ('provider anthropic { key file("keys/anthropic") }\n', SecretState.MALFORMED),
    "HM209_irregular": ('provider anthropic { key file("keys/anthropic") }\n', SecretState.IRREGULAR),
    "HM605_exposed": ('provider anthropic { key file("keys/anthropic") }\n', SecretState.EXPOSED),
}
"""A policy, and what a machine says of its secret."""

BASES: Mapping[str, tuple[str, str]] = {
    "HM217_env": ("provider anthropic { base env(ANTHROPIC_BASE) }\n", "user:hunter2@10.0.0.7:8000"),
    "HM217_env_port": ("provider anthropic { base env(ANTHROPIC_BASE) }\n", "https://10.0.0.7:hunter2"),
    "HM604_env": ("provider anthropic {\n  base env(ANTHROPIC_BASE)\n  key  env(KEY)\n}\n", "http://10.0.0.7:8000"),
    "HM611_env": (
        "server { nodes 2 }\nstore redis { url env(REDIS_URL) }\nprovider anthropic { }\n",
        "redis://team:hunter2@10.0.0.5:6379",
    ),
    "HM608_login": ("provider anthropic {\n  account me { key env(ANTHROPIC_BASE) }\n}\n", "sk-ant-oat01-hunter2"),
}
"""A policy, and what its base URL or key is on a machine."""


@attrs.frozen
class Case:
    """One golden file and what it is made from."""

    name: str
    make: Callable[[], Checked]

    @property
    def code(self) -> str:
        """What the case is there for."""
        return self.name[:5]

    @property
    def golden(self) -> Path:
        """What a user is shown."""
        return FOLDER / f"{self.name}.txt"


def cases() -> list[Case]:
    """All of them, in order."""
    found = [Case(path.stem, _of_file(path)) for path in FOLDER.glob("*.hmp")]
    found += [Case(path.name, _of_folder(path)) for path in FOLDER.iterdir() if path.is_dir()]
    found += [Case(name, _of_bytes(content)) for name, content in BYTES.items()]
    found += [Case(name, _of_secret(text, state)) for name, (text, state) in SECRETS.items()]
    found += [Case(name, _of_base(text, value)) for name, (text, value) in BASES.items()]
    return sorted(found, key=lambda case: case.name)


def shown(checked: Checked) -> str:
    """The golden text."""
    return render([checked], "text")


def tested(checked: Checked, code: str) -> Checked:
    """With what its tests find; what they do not look at, or with no time at all, where the code is about that."""
    coverage = code == "HM311"
    simulated = [test for test in checked.tests if checked.program is not None and isinstance(test.asks, Run)]
    ticks = count(0.0)
    budget_s = 0.0 if code == "HM504" else BUDGET_S
    done = (
        *run_tests(checked, coverage=coverage),
        *(
            rehearse(checked, test, budget_s=budget_s, clock=lambda: 0.0 if budget_s else next(ticks))
            for test in simulated
        ),
    )
    checked = with_tests(checked, done)
    return with_findings(checked, unexercised(checked, done)) if coverage else checked


def _of_file(path: Path) -> Callable[[], Checked]:
    return lambda: tested(check(path.name, MemoryFiles({path.name: path.read_bytes()})), path.name[:5])


def _of_folder(path: Path) -> Callable[[], Checked]:
    def make() -> Checked:
        texts = {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*.hmp")}
        return check("team.hmp", MemoryFiles(texts))

    return make


def _of_bytes(content: bytes | None) -> Callable[[], Checked]:
    return lambda: check("team.hmp", MemoryFiles({} if content is None else {"team.hmp": content}))


def _of_secret(text: str, state: SecretState) -> Callable[[], Checked]:
    def make() -> Checked:
        def probe(_: SecretRef) -> SecretState:
            return state

        checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
        return attrs.evolve(checked, diagnostics=check_secrets(checked, probe))

    return make


def _of_base(text: str, value: str) -> Callable[[], Checked]:
    def make() -> Checked:
        checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
        values = dict.fromkeys(checked.secret_spans, value)
        return attrs.evolve(checked, diagnostics=(*check_bases(checked, values), *check_keys(checked, values)))

    return make


def main() -> None:
    """Write every golden file, unless a case no longer gives the code of its name."""
    every = cases()
    made = {case: case.make() for case in every}
    lost = [case.name for case, checked in made.items() if case.code not in {one.code for one in checked.diagnostics}]
    if lost:
        sys.exit(f"nothing written; these no longer give the code of their name: {', '.join(lost)}")
    for stale in set(FOLDER.glob("*.txt")) - {case.golden for case in every}:
        stale.unlink()
    changed = 0
    for case, checked in made.items():
        text = shown(checked)
        if not case.golden.exists() or case.golden.read_text(encoding="utf-8") != text:
            case.golden.write_text(text, encoding="utf-8")
            changed += 1
    print(f"{len(every)} cases, {changed} written")


if __name__ == "__main__":
    main()
