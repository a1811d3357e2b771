"""How far off is the estimate of the tokens of an agent's first call, before any answer has taught better?

Target: at most 15 % (median) for Codex. The real command lines from npm, in a network namespace without a way out and
with a home of their own, send their first call to a provider on a loopback port (`bench.plan_provider`). Its tokens are
those of o200k, OpenAI's own: texts of instructions and messages as the model sees them, tools as compact JSON, four for
each message; ids and metadata are none. Claude's tokenizer is not public, so the error of Claude Code is not known;
its o200k tokens are a lower bound. Bodies are measured, not kept. Codex's are counted by `estimate tokenizer` as well,
with another implementation of the tokenizer and by the proxy's own reading of a body.

    npm install --prefix DIR @anthropic-ai/claude-code @openai/codex gpt-tokenizer
    python -m bench.first_calls --bin DIR/node_modules/.bin [--bin OTHER ...] [--md F.md] [--json F.json]

The first folder must have `gpt-tokenizer` beside it; further ones may hold other versions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from hivemind_trio.proxy.counting.tokenizer import counter
from hivemind_trio.wire import recognise
from hivemind_trio.wire.body.steps import done
from hivemind_trio.wire.request.token_counting import counting

from .plan_provider import PlanProvider, serving
from .run import INSIDE, KEYS, SWITCHES
from .tables import Table, provenance, write

PROMPTS: Final = (
    "fix the failing test",
    "Add an option --json to the report command, with tests. Keep the public API, and update the README.",
)
RULES: Final = "# Rules\n\n- Python 3.12, ruff, mypy strict.\n- Run `pytest -q` before each commit.\n"
PATIENCE_S: Final = 60.0
NO_PROMPT: Final = {"id", "type", "role", "encrypted_content", "cache_control", "prompt_cache_key"}
NO_PROMPT_ENDS: Final = ("metadata", "_passthrough")
MESSAGE_TOKENS: Final = 4
BODY_MIN: Final = 15_000
"""Smaller calls are of side tasks: titles, the state of a quota."""

COUNT: Final = """
const { encode } = require("gpt-tokenizer/cjs/encoding/o200k_base");
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => encode(text, { allowedSpecial: "all" }).length)));
"""


def prompt_texts(value: Any) -> Iterator[str]:
    """Yield the texts of a body that the model sees, each as it sees it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from prompt_texts(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name == "tools":
                yield tools_text(one)
            elif is_prompt(name):
                yield from prompt_texts(one)


def tools_text(value: Any) -> str:
    """Return definitions of tools as compact JSON, their texts as they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(tools_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{tools_text(one)}' for name, one in value.items())}}}"
    return json.dumps(value)


def is_prompt(name: str) -> bool:
    """Return True if the member of a body is part of the prompt."""
    return name not in NO_PROMPT and not name.endswith(NO_PROMPT_ENDS)


def tokens(body: bytes, modules: Path) -> int:
    """Count the prompt of a body."""
    asked = json.loads(body)
    messages = asked.get("messages") or asked.get("input") or []
    parts = {name: asked[name] for name in ("system", "instructions", "tools") if asked.get(name)}
    counted = subprocess.run(
        ["node", "-e", COUNT],
        input=json.dumps([*prompt_texts(parts), *prompt_texts(messages)]),
        env={**os.environ, "NODE_PATH": f"{modules}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(sum(json.loads(counted.stdout))) + MESSAGE_TOKENS * len(messages)


def first_bodies(bin_folder: Path, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield user-agent and body of the first call of each command."""
    (folder / "work").mkdir()
    for name in ("AGENTS.md", "CLAUDE.md"):
        (folder / "work" / name).write_text(RULES)
    for prompt in PROMPTS:
        for command in (["claude", "-p", prompt], ["codex", "exec", "--skip-git-repo-check", prompt]):
            if not (bin_folder / command[0]).exists():
                continue
            provider = PlanProvider(keeps_bodies=True)
            with serving(provider) as url, tempfile.TemporaryDirectory(dir=folder) as home:
                environment = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": home, **KEYS, **SWITCHES}
                if command[0] == "codex":
                    command[1:1] = ["-c", f'openai_base_url="{url}/v1"']
                subprocess.run(
                    command,
                    cwd=folder / "work",
                    env={**environment, "ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=PATIENCE_S,
                    check=False,
                )
            yield from [one for one in provider.bodies if len(one[1]) >= BODY_MIN][:1]


def measure(user_agent: str, body: bytes, modules: Path) -> dict[str, Any]:
    """Return the figures of one body."""
    asked = json.loads(body)
    path = "/v1/responses" if "input" in asked else "/v1/messages"
    counted = tokens(body, modules)
    seen = recognise("POST", path, {"user-agent": user_agent}, body)
    by_tokenizer = done(counting("", body, counter())) if path == "/v1/responses" else None
    return {
        "client": user_agent.split(" ")[0],
        "model": seen.model,
        "bytes": len(body),
        "tokens": counted,
        "bytes per token": round(len(body) / counted, 2),
        "estimate": seen.tokens_in,
        "error": round(100 * (seen.tokens_in / counted - 1), 1),
        "tokenizer": by_tokenizer,
        "its error": round(100 * (by_tokenizer / counted - 1), 2) if by_tokenizer is not None else None,
        "before": round(100 * (len(body) // 4 / counted - 1), 1),
    }


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each body, and say the median error of Codex's."""
    codex = [row for row in rows if row["client"].startswith("codex")]
    names = (
        "client",
        "model",
        "bytes",
        "tokens",
        "bytes per token",
        "estimate",
        "error",
        "tokenizer",
        "its error",
        "before",
    )
    notes = [
        "Tokens of o200k; errors in percent: of the estimate by bytes, of `estimate tokenizer`, and before, with four "
        "bytes for a token."
    ]
    if codex:
        names_of_errors = ("error", "its error", "before")
        now, counted, before = (median(abs(row[name]) for row in codex) for name in names_of_errors)
        notes.append(
            f"Median error of Codex's {now:.1f} %, with the tokenizer {counted:.2f} %, before {before:.1f} %. Claude "
            "Code's is not known."
        )
    return Table(
        title="First calls",
        notes=notes,
        head=list(names),
        rows=[["" if row[name] is None else f"{row[name]}" for name in names] for row in rows],
        figures=list(rows),
    )


def main() -> int:
    """Measure the clients of all folders; 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, action="append", required=True, help="folder of `claude` and `codex`")
    parser.add_argument("--md", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument(INSIDE, dest="inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        again = [sys.executable, "-m", "bench.first_calls", INSIDE, *sys.argv[1:]]
        # Agents call home; here nothing but loopback is to be reached.
        return subprocess.run(["unshare", "-rn", *again], check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    rows = []
    for folder in options.bin:
        with tempfile.TemporaryDirectory() as scratch:
            for user_agent, body in first_bodies(folder.resolve(), Path(scratch)):
                rows.append(measure(user_agent, body, options.bin[0].resolve().parent))
                print(rows[-1], file=sys.stderr, flush=True)
    print(write([table(rows)], provenance(), title="First calls", md=options.md, data=options.json))
    errors = [abs(row["error"]) for row in rows if row["client"].startswith("codex")]
    return 0 if errors and median(errors) <= 15 else 1


if __name__ == "__main__":
    sys.exit(main())
