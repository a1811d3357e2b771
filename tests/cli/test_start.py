"""Asking for help costs no import of what help does not need."""

from __future__ import annotations

import marshal
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("lark", "hypercorn", "trio", "h11", "httpx2", "pygls", "pygments")

SCRIPT = """
import sys
{what}
print(*sorted(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
"""

HELP = """
from hivemind_trio.cli import run
sys.argv = ["hivemind-trio", *{args!r}]
try:
    run()
except SystemExit as ended:
    assert not ended.code, ended.code
"""


def in_a_process(what: str) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(what=what, heavy=HEAVY)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)


def test_importing_the_package_imports_neither_the_parser_nor_a_server() -> None:
    assert in_a_process("import hivemind_trio").stderr.split() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["", "check", "fmt", "explain", "diff", "simulate", "serve", "demo", "lsp", "completion", "man"]
)
def test_help_imports_neither_the_parser_nor_a_server_and_shows_examples(command: str) -> None:
    args = [command, "--help"] if command else ["--help"]

    ended = in_a_process(HELP.format(args=args))

    assert ended.stderr.split() == []
    assert ended.stdout.startswith(f"Usage: {' '.join(['hivemind-trio', *args[:-1]])}")
    assert "Examples:" in ended.stdout
    assert all(len(line) <= 120 for line in ended.stdout.splitlines())


@pytest.mark.slow
def test_a_check_without_simulated_tests_does_not_import_the_simulator() -> None:
    script = HELP.format(args=["check", "policies/solo.hmp"]) + "print(*sys.modules, file=sys.stderr)"

    imported = in_a_process(script).stderr.split()

    assert "hivemind_trio.policy.testing.runner" in imported
    assert "hivemind_trio.sim" not in imported


def test_the_module_is_the_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "hivemind_trio", "--version"], capture_output=True, text=True, timeout=60, check=True
    )

    assert ended.stdout.startswith("hivemind-trio, version ")


COMPILED = """
import builtins, sys
at = []
original = builtins.compile
def compile(source, filename, *rest, **more):
    at.append(str(filename))
    return original(source, filename, *rest, **more)
builtins.compile = compile
import hivemind_trio.model
print(sum("attrs generated methods hivemind_trio.model." in one for one in at), file=sys.stderr)
"""


@pytest.mark.slow
def test_in_a_test_run_processes_find_what_attrs_has_compiled(tmp_path: Path) -> None:
    kept = "from pathlib import Path; from tests.support.kept_code import keep\n"
    kept += f"print(keep(Path({str(tmp_path)!r}), 'hivemind_trio.model'), file=sys.stderr)"
    assert int(in_a_process(kept).stderr.split()[0]) > 10
    file = str(tmp_path / "hivemind_kept_code.py")
    look = f"exec(open({file!r}).read(), {{'__file__': {file!r}}})\n"

    assert in_a_process(look + COMPILED).stderr.split()[0] == "0"
    (tmp_path / "hivemind_kept_code.bin").write_bytes(marshal.dumps({}))
    assert int(in_a_process(look + COMPILED).stderr.split()[0]) > 10  # what is not kept is compiled
