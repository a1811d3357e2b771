"""The page for batch pipelines, as it stands: its policy before a provider, its programs against its proxy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
import trio

import hivemind_trio.docs
from hivemind_trio.sim import Traits
from tests.e2e.house import PATIENCE_S, standing

MS: Final = 1_000_000
PAGE: Final = (Path(hivemind_trio.docs.__file__).parent / "batch.md").read_text(encoding="utf-8")
PROGRAMS: Final = {
    title: re.search(rf"^## {title}\n+```python\n(.*?)^```", PAGE, re.M | re.S)
    for title in ("openai", "anthropic", "litellm")
}
LITELLM: Final = "PYTHON_WITH_LITELLM"
"""Variable with the path of an interpreter that has LiteLLM, whose pins exclude those of the test extra."""


def policy() -> str:
    """The page's policy, with its provider on a loopback port."""
    match = re.search(r"^```hmp\n(.*?)^```", PAGE, re.M | re.S)
    assert match is not None
    text, keys = re.subn(r"key +env\(\w+\)", "base env(UPSTREAM)", match[1])
    assert keys == 2
    return text


def interpreter(title: str) -> str:
    """Return the Python that runs a program of the page."""
    if find_spec(title) is not None:
        return sys.executable
    if title != "litellm" or LITELLM not in os.environ:
        pytest.skip(f"{title} is not installed; {LITELLM} may name an interpreter that has it")
    return os.environ[LITELLM]


@pytest.mark.parametrize("title", PROGRAMS)
async def test_forty_calls_at_once_get_through_a_provider_that_takes_eight(title: str, tmp_path: Path) -> None:
    match = PROGRAMS[title]
    assert match is not None
    python = interpreter(title)
    # One more at once than the policy's is an answer 429.
    traits = Traits(concurrency=8, latency_mean_ns=20 * MS, latency_sigma_ns=5 * MS, latency_min_ns=MS)
    async with standing(policy(), traits=traits) as place:
        program, addresses = re.subn(r"http://127\.0\.0\.1:8787", place.url, match[1])
        assert addresses == 1
        with trio.fail_after(2 * PATIENCE_S):
            ended = await trio.run_process(
                [python, "-c", program],
                cwd=tmp_path,
                env={"PATH": os.environ["PATH"], "HOME": f"{tmp_path}", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        assert ended.returncode == 0, ended.stderr.decode()[-2_000:]
        assert ended.stdout.decode() == "40 done\n"
        assert len(place.provider.seen) == 40  # no 429 and no retry
        assert {(one.lane, one.status, one.attempts) for one in place.records} == {("batch", 200, 1)}
