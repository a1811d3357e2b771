"""Processes that tests have forked (`tests/support/forked.py`) are what they would be if they were started."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.process import environment
from tests.support import forked
from tests.support.forked import ROOT, STARTS, as_ever

SHOWN = "tests.support.as_started"
WITH_TESTS = environment(PYTHONPATH=str(ROOT))
PR_GET_CHILD_SUBREAPER = 37

pytestmark = pytest.mark.skipif(STARTS.is_off, reason="nothing is forked here")


@pytest.fixture(autouse=True)
def _shown_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork this file's own command, and with its variables from the first on."""
    monkeypatch.setattr(STARTS, "modules", {*STARTS.modules, SHOWN})
    STARTS.forking.setdefault(frozenset(forked.at_start(WITH_TESTS).items()), None)


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    more = {"env": WITH_TESTS, "capture_output": True, **more}
    return subprocess.run([sys.executable, "-m", SHOWN, *arguments], text=True, timeout=60, check=False, **more)


def both(*arguments: str, **more: Any) -> list[subprocess.CompletedProcess[str]]:
    """Run it started and forked."""
    with as_ever():
        started = run(*arguments, **more)
    before = STARTS.forked
    child = run(*arguments, **more)
    assert STARTS.forked == before + 1
    return [started, child]


@pytest.mark.parametrize("more", [{}, {"cwd": "/"}, {"env": {**WITH_TESTS, "OLLAMA_HOST": "ü", "COLUMNS": "7"}}])
def test_it_has_what_it_would_have_had_from_its_start(more: dict[str, Any]) -> None:
    started, child = both(**more)

    assert json.loads(child.stdout) == json.loads(started.stdout)


def test_it_has_the_test_s_own_folder_and_variables_where_none_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OF_THIS_TEST", "yes")
    STARTS.forking.setdefault(frozenset(forked.at_start(os.environ).items()), None)

    started, child = both(env=None)

    shown, model = json.loads(child.stdout), json.loads(started.stdout)
    for variables in (shown["environment"], model["environment"]):
        for size in ("LINES", "COLUMNS"):  # readline tells only C of them
            variables.pop(size, None)
    assert shown == model
    assert (shown["folder"], shown["environment"]["OF_THIS_TEST"]) == (str(tmp_path), "yes")


@pytest.mark.parametrize("stderr", [subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL])
def test_it_reads_and_writes_the_streams_that_it_is_given(stderr: int) -> None:
    started, child = both("3", input="said\n", stdout=subprocess.PIPE, stderr=stderr, capture_output=False)

    assert vars(child) == vars(started)
    assert child.returncode == 3
    assert "said\n" in f"{child.stdout}{child.stderr}" or stderr == subprocess.DEVNULL


def test_a_signal_ends_it_and_its_parent_hears_of_it() -> None:
    with subprocess.Popen([sys.executable, "-m", SHOWN], env=WITH_TESTS, stdin=subprocess.PIPE, stdout=-3) as process:
        assert Path(f"/proc/{process.pid}/stat").read_text().split()[3] == str(os.getpid())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def test_nothing_stays_with_the_test() -> None:
    run()
    open_before = os.listdir("/proc/self/fd")

    run()
    orphan = subprocess.check_output(["sh", "-c", "sleep 60 >/dev/null & echo $!"], text=True)

    assert os.listdir("/proc/self/fd") == open_before
    os.kill(int(orphan), signal.SIGKILL)
    with pytest.raises(ChildProcessError):  # it is the system's; a zombie of the test would look alive to others
        os.waitpid(int(orphan), 0)
    taking = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(taking), 0, 0, 0)
    assert taking.value == 0


@pytest.mark.parametrize(
    "more", [{"start_new_session": True}, {"pass_fds": [2]}, {"close_fds": False}, {"preexec_fn": os.getpid}]
)
def test_what_asks_for_more_is_started(more: dict[str, Any]) -> None:
    before = STARTS.forked

    assert run(**more).returncode == 0

    assert STARTS.forked == before


def test_what_python_reads_at_its_start_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = STARTS.forked
    utc, latin = ({**WITH_TESTS, **own} for own in ({"TZ": "UTC"}, {"PYTHONIOENCODING": "latin-1"}))

    encodings = [json.loads(run(env=latin).stdout)["streams"][0][0] for _ in range(2)]
    json.loads(run(env=utc).stdout)

    assert encodings == ["iso8859-1", "iso8859-1"]
    assert STARTS.forked == before + 1  # the second of those with another encoding


def test_a_folder_that_is_not_there_is_told_as_ever() -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run(cwd="/nowhere")
