"""Advice on limits: which limit of the policy, lifted alone, would have shortened the waits of the last hour.

A process of its own computes it (`advice_process.py`) when somebody asks; the result is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import attrs
import msgspec
import trio

from hivemind_trio.admin.history import DatedAdvice
from hivemind_trio.admin.operated import SECOND_NS, NoArguments, Operated
from hivemind_trio.admin.views import AdviceState, AdviceView

from .advice_study import CPU_NS, SHARE, SPAN_NS, AdviceTask, StudiedAdvice, without_study

MODULE: Final = "hivemind_trio.admin.forecasts.advice_process"
TIME_S: Final = 4 * CPU_NS / SHARE / SECOND_NS
"""Time for the process: it has a share of a processor, which may be busy."""
ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LANG", "LC_ALL", "TZDIR")
"""Variables that the process is given: no secret is one of them."""


def advice(proxy: Operated, _: NoArguments) -> AdviceView:
    """Return which limit, lifted alone, would have shortened the waits of the last hour."""
    keeper = proxy.advice
    last = keeper.last
    if proxy.facts.journal is None:
        text = "there is no journal to simulate the last hour from: the policy has `journal off`"
        return without_study(AdviceState.UNAVAILABLE, text)
    if last is None or not last.is_fresh(proxy.engine.now_ns(), proxy.policy_hash):
        keeper.want()
    if last is None or last.policy_hash != proxy.policy_hash:
        return without_study(AdviceState.COMPUTING, "the last hour is being simulated")
    return attrs.evolve(last.view, at=proxy.at(last.taken_ns))


async def keep_advised(proxy: Operated) -> None:
    """Compute advice whenever somebody wants it and it is old, for ever."""
    keeper = proxy.advice
    while True:
        await keeper.wanted()
        path, program, now_ns = proxy.facts.journal, proxy.engine.program, proxy.engine.now_ns()
        if path is None or (keeper.last is not None and keeper.last.is_fresh(now_ns, program.hash)):
            continue
        running = proxy.policy.running()
        task = AdviceTask(
            journal=path,
            since_ns=proxy.wall_ns() - SPAN_NS,
            policy=running.checked.paths[0],
            files={source.name: source.text for source in running.checked.sources},
            refuse_unknown=program.server.refuse_unknown,
        )
        found = await _computed(task)
        keeper.last = DatedAdvice(taken_ns=now_ns, policy_hash=program.hash, cost_ns=found.cost_ns, view=found.view)


async def _computed(task: AdviceTask) -> StudiedAdvice:
    """Return the result of a process; it ends with the proxy."""
    try:
        with trio.fail_after(TIME_S):
            ended = await trio.run_process(
                [sys.executable, "-P", "-m", MODULE],
                stdin=msgspec.json.encode(task),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                process_group=0,  # Ctrl-C is for the proxy
            )
        return msgspec.json.decode(ended.stdout, type=StudiedAdvice)
    except trio.TooSlowError:
        problem = f"it took more than {TIME_S:.0f} s"
    except msgspec.DecodeError:
        problem = f"its process ended with status {ended.returncode}: {_last_line(ended)}"
    except OSError as error:
        problem = f"its process cannot be started: {error}"
    return StudiedAdvice(view=without_study(AdviceState.UNAVAILABLE, f"the last hour cannot be simulated: {problem}"))


def _last_line(ended: subprocess.CompletedProcess[bytes]) -> str:
    lines = ended.stderr.decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")
