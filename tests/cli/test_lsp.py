"""`hivemind-trio lsp` without its extra; with it, sessions are under `tests/lsp`."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_without_its_extra_it_says_what_to_install() -> None:
    script = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pygls" else real(name, package)
from hivemind_trio.cli import run
sys.argv = ["hivemind-trio", "lsp"]
run()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "pip install 'pygls>=2'" in ended.stderr
    assert "Traceback" not in ended.stderr
