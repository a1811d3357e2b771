"""Thirty jobs of Claude Code and Codex whose plan window closes in the middle: `run`, GNU parallel, `xargs -P`.

The real command lines from npm, in a network namespace without a way out and with a home of their own, call a provider
on a loopback port (`bench.plan_provider`). `run` is killed (kill -9) while the window is closed, and continued. A job
is done if its process ended with status 0; it is whole if all its answered calls are of one session.

    npm install --prefix DIR @anthropic-ai/claude-code @openai/codex
    python -m bench.run --bin DIR/node_modules/.bin [--jobs 30] [--md F.md] [--json F.json]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from .plan_provider import PlanProvider, serving
from .tables import Table, provenance, write

AGENTS: Final = 6
NAMES: Final = {
    "run": "`hivemind-trio run`",
    "parallel": "GNU parallel, `--retries 3`",
    "xargs": "`xargs -P`",
}
PATIENCE_S: Final = 600.0
INSIDE: Final = "--inside-namespace"
KEYS: Final = {"ANTHROPIC_API_KEY": "sk-ant-none", "CODEX_API_KEY": "sk-none"}
SWITCHES: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}


def claude(prompt: str) -> list[str]:
    return ["claude", "-p", prompt, "--output-format", "json"]


def codex(prompt: str) -> list[str]:
    return ["codex", "exec", "--skip-git-repo-check", "--json", prompt]


def commands(jobs: int) -> list[list[str]]:
    """The command of each job: every third is Codex's."""
    return [(codex if number % 3 == 2 else claude)(f"fix package {number}") for number in range(jobs)]


def direct(command: list[str], url: str) -> str:
    """The command as one would write it for a shell, straight at the provider."""
    if command[0] == "codex":
        command = ["codex", "-c", f'openai_base_url="{url}/v1"', *command[1:]]
    return shlex.join(command)


class Bench:
    """A scratch folder, and the window of the provider."""

    def __init__(self, folder: Path, bin_folder: Path, jobs: int, closed: tuple[float, float]) -> None:
        self.folder, self.jobs, self.closed = folder, jobs, closed
        self.environment = {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "HOME": f"{folder / 'home'}",
            "XDG_STATE_HOME": f"{folder / 'state'}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            **KEYS,
            **SWITCHES,
        }
        (folder / "home").mkdir()
        (folder / "work").mkdir()

    def measure(self, way: str) -> dict[str, Any]:
        """Run the jobs one way; the figures."""
        provider = PlanProvider(self.closed, answer_s=0.5)
        with serving(provider) as url:
            began_s = time.perf_counter()
            done, starts = self._run(url) if way == "run" else self._shell(way, url)
            seconds = time.perf_counter() - began_s
        return {
            "way": way,
            "jobs": self.jobs,
            "done": done,
            "sessions": len(provider.answered),
            "starts": starts,
            "seconds": round(seconds, 1),
            "refused": provider.refused,
            "most in flight": provider.inflight_max,
        }

    def _shell(self, way: str, url: str) -> tuple[int, int]:
        lines = "\n".join(direct(one, url) for one in commands(self.jobs)) + "\n"
        log = self.folder / f"{way}.log"
        tools = {
            # `xargs` says only that one failed; each writes its own status.
            "xargs": ["xargs", "-P", f"{AGENTS}", "-d", "\n", "-I{}", "sh", "-c", f"{{}}; echo $? >> {log}"],
            "parallel": ["parallel", "-j", f"{AGENTS}", "--joblog", f"{log}", "--retries", "3"],
        }
        environment = {**self.environment, "ANTHROPIC_BASE_URL": url}
        subprocess.run(
            tools[way],
            input=lines,
            text=True,
            cwd=self.folder / "work",
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
        )
        rows = log.read_text().splitlines()
        if way == "xargs":
            return sum(row == "0" for row in rows), len(rows)
        statuses = {row.split("\t")[0]: row.split("\t")[6] for row in rows[1:]}
        return sum(status == "0" for status in statuses.values()), len(rows) - 1

    def _run(self, url: str) -> tuple[int, int]:
        policy, tasks = self.folder / "bench.hmp", self.folder / "tasks.jsonl"
        providers = "\n".join(f'provider {name} {{ base "{url}" }}' for name in ("anthropic", "openai"))
        policy.write_text(f"hmp 1\n{providers}\n")
        tasks.write_text("".join(json.dumps({"command": one}) + "\n" for one in commands(self.jobs)))
        command = [sys.executable, "-m", "hivemind_trio", "run"]
        options = ["--from", f"{tasks}", "--policy", f"{policy}", "-n", f"{AGENTS}"]
        runner = subprocess.Popen([*command, *options], cwd=self.folder / "work", env=self.environment)
        time.sleep((self.closed[0] + self.closed[1]) / 2)
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        again = subprocess.run(
            [*command, "--continue", "last", "--json"],
            cwd=self.folder / "work",
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        told = json.loads(again.stdout)
        return told["counts"].get("done", 0), sum(job["starts"] for job in told["jobs"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder of the programs `claude` and `codex`")
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--closed", type=float, nargs=2, default=(12.0, 40.0), metavar=("FROM_S", "UNTIL_S"))
    parser.add_argument("--ways", nargs="+", default=["run", "parallel", "xargs"])
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument(INSIDE, dest="inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        again = [sys.executable, "-m", "bench.run", INSIDE, *sys.argv[1:]]
        # Agents call home; here nothing but loopback is to be reached.
        return subprocess.run(["unshare", "-rn", *again], check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    rows = []
    for way in options.ways:
        if way != "run" and shutil.which(way) is None:
            sys.stderr.write(f"{way} is not installed: left out\n")
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append(Bench(Path(folder), options.bin.resolve(), options.jobs, tuple(options.closed)).measure(way))
            sys.stderr.write(f"{rows[-1]}\n")
    made = provenance(
        agents=AGENTS, closed=f"{options.closed[0]:g} to {options.closed[1]:g} s", **_versions(options.bin)
    )
    head = ["", "done", "processes", "sessions", "seconds", "refused by the provider", "most in flight"]
    names = ("done", "starts", "sessions", "seconds", "refused", "most in flight")
    cells = [[NAMES[row["way"]], *(f"{row[name]}" for name in names)] for row in rows]
    table = Table(
        title="Jobs of agents over a closed window",
        notes=[f"{options.jobs} jobs, {AGENTS} at once. `run` was killed (kill -9) in the middle, and continued."],
        head=head,
        rows=cells,
        figures=rows,
    )
    print(write([table], made, title="Runs", md=options.md, data=options.json))
    return 0


def _versions(bin_folder: Path) -> dict[str, str]:
    said = {}
    for name in ("claude", "codex"):
        out = subprocess.run([bin_folder / name, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        said[name] = out.split()[0 if name == "claude" else 1]
    return said


if __name__ == "__main__":
    sys.exit(main())
