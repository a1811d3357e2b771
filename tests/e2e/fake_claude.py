"""A stand-in for the command line of Claude Code: sessions in files, a few calls, and its way to end at a limit.

The real one is run by `bench.run`; here is what of it `hivemind-trio run` relies on (measured on 2.1.197): `-p`,
`--session-id`, `--resume`, a result as the last line with `--output-format json`, and exit status 1 at a limit.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

TURNS = int(os.environ.get("FAKE_TURNS", "2"))
PAUSE_S = float(os.environ.get("FAKE_PAUSE_S", "0"))


def main(arguments: list[str]) -> int:
    sessions = Path(os.environ["FAKE_SESSIONS"])
    resumes = "--resume" in arguments
    name = arguments[arguments.index("--resume" if resumes else "--session-id") + 1]
    prompt = next(one for one in arguments if not one.startswith("-") and one != name)
    path = sessions / f"{name}.jsonl"
    if resumes and not path.exists():
        sys.stderr.write(f"No conversation found with session ID: {name}\n")
        return 1
    if not resumes and path.exists():
        sys.stderr.write(f"Error: Session ID {name} is already in use.\n")
        return 1
    with path.open("a") as session:
        session.write(json.dumps({"prompt": prompt}) + "\n")
    done = sum("answer" in json.loads(line) for line in path.read_text().splitlines())
    while done < TURNS:
        status, text = ask(name, prompt)
        if status != 200:
            print(json.dumps(result(name, f"API Error: {status} {text[:80]}", status)))
            return 1
        with path.open("a") as session:
            session.write(json.dumps({"answer": done}) + "\n")
        done += 1
        time.sleep(PAUSE_S)
    print(json.dumps(result(name, "done", None)))
    return 0


def result(name: str, text: str, status: int | None) -> dict[str, object]:
    failed = status is not None
    return {"type": "result", "is_error": failed, "api_error_status": status, "result": text, "session_id": name}


def ask(name: str, prompt: str) -> tuple[int, str]:
    body = {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps(body).encode(),
        {
            "content-type": "application/json",
            "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "sk-test"),
            "x-claude-code-session-id": name,
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
