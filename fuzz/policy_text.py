"""The policy language against any bytes as a policy file.

Invariants, whatever the bytes:

- `check` raises nothing, and there is a program exactly if there is no error;
- the lexemes put together are the text;
- the findings can be shown in every format, and no format shows a key, or a letter that a terminal acts on;
- `format_text` gives a text that says the same and that it leaves as it is, or refuses because of a syntax error;
- a policy without errors decides a call, and `explain` agrees.

The first byte chooses what the bytes are besides a whole file: one that the first includes, or one piped in.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from pathlib import Path

from hivemind_trio.policy import (
    FORMATS,
    FormatError,
    MemoryFiles,
    Severity,
    check,
    explain,
    format_text,
    parse_request,
    render,
)
from hivemind_trio.policy.syntax.lexer import lexemes
from hivemind_trio.policy.syntax.parser import parse

KEY = "sk-ant-api03-Zm9vYmFyYmF6"
LEAKED = re.compile(rf"(?<![\w-]){KEY}", re.ASCII)
"""Glued to other letters it is a word like any other."""

# What a mutator starts from: every declaration, every shape of a value, and what is often mistaken.
SEEDS = (
    b'\x00provider anthropic { concurrency 4..32 start 8; key env(K); limits "claude-*" { requests 50/min } }\n',
    b'\x00let cheap = ["claude-haiku-*", "gpt-*"]\nrule r when tokens.in > 50k and not (model ~ cheap or stream)\n'
    b'{ lane batch; priority 2; deny "no \\"x\\""\n}\nlane batch { aging 1 every 30s }\nprovider anthropic { }\n',
    b'\x00agent ci when header.x-ci != "" { token [env(A), file("b")] }\nteam t { }\ndefaults lane { deadline 1h30m }\n'
    b"rule n when hour in 22..23 or cost > $0.50 { provider openai }\nprovider openai { timeout connect 5s idle 1m }\n",
    b'\x00budget b per agent { cost $5/day; at 80% { warn } }\nmodel "m" { price input $3/Mtok }\n'
    b'test "t" { given { hour 3 }; expect lane == default }\nprovider anthropic { serves ["a" # why\n] }\n',
    b'\x01include "other.hmp"\nprovider anthropic extends base { fallback base }\nprovider base { api vllm }\n',
    b"\x00provider anthropic { concurrency = 4\n  timeout connect 5 first-byte 30sec }\n}\n"
    b"rule x when a && b < c < d { lane [ }\n",
    b'\x02# hmp: allow HM308 why\nlane batch { }\r\nprovider "x { \x1b[2J \xe2\x80\xae }\n',
    b"\x00# " + KEY.encode() + b'\nprovider anthropic { key "' + KEY.encode() + b'" }\nrule ' + KEY.encode() + b" { }",
)


def one_input(data: bytes) -> None:
    shape, content = data[0] % 3 if data else 0, data[1:]
    name = ("team.hmp", "team.hmp", "<stdin>")[shape]
    texts: dict[str, str | bytes] = {name: content, "other.hmp": "lane other { }\n"}
    if shape == 1:
        texts = {name: b'include "other.hmp"\nprovider anthropic { }\n', "other.hmp": content}
    checked = check(name, MemoryFiles(texts))

    errors = [found for found in checked.diagnostics if found.severity is Severity.ERROR]
    assert (checked.program is None) is bool(errors)
    for found in checked.diagnostics:
        source = checked.sources[found.span.source]
        assert 0 <= found.span.start <= found.span.end <= len(source.text), found
    for format_ in FORMATS:
        _shown(render([checked], format_), format_)
    _shown(render([checked, checked], "text"), "text")
    if checked.program is not None:
        explanation = explain(checked, parse_request(checked, ["model=claude-opus-4-1", "tokens.in=12k"]))
        assert explanation.treatment == checked.program.decide(explanation.request)

    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return
    assert "".join(piece.text for piece in lexemes(text, 0)) == text
    _, problems = parse(text, 0)
    try:
        formatted = format_text(text)
    except FormatError:
        if not problems:
            raise  # its own words or comments would have changed
    else:
        assert not problems
        assert format_text(formatted) == formatted


def _shown(text: str, format_: str) -> None:
    text.encode("utf-8")
    assert not LEAKED.search(text)
    for letter in text:
        raw = unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp", "Cs") and letter not in "\n\u200c\u200d"
        assert not raw, ascii(letter)
    if format_ in ("json", "sarif"):
        json.loads(text)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        one_input(Path(path).read_bytes())
    if not sys.argv[1:]:
        for seed in SEEDS:
            one_input(seed)
