"""Regimes in a minute: clients that ask again, streams, storms and quotas, small enough for real time."""

from __future__ import annotations

from typing import Final

from hivemind_trio.sim import Scenario, parse_scenario

_AGENTS: Final = """
[[agents]]
name = "agent"
count = 12
turns = 6
start = "0s..3s"
think = "~1s"
"""

_POLICY: Final = """
provider simulated {{
  api {api}; base "http://127.0.0.1:9"; concurrency {concurrency}
  {limits}
  retry patient
}}
retry patient {{
  on [429, 500, 502..504, 529, connect, reset, first-byte]; attempts 20; backoff 500ms..20s jitter full; ratio 50%
}}
server {{ wait silent 15s hold 240s }}
"""


def _short(
    name: str, *, client: str, stream: bool, upstream: str, limits: str = "", agents: str = "", concurrency: str = "16"
) -> Scenario:
    api = "openai" if client in ("openai-sdk", "codex") else "anthropic"
    policy = _POLICY.format(api=api, limits=f"limits {{ {limits} }}" if limits else "", concurrency=concurrency)
    text = f'until = "10m"\npolicy = """{policy}"""\n{_AGENTS}{agents}\nclient = "{client}"\n'
    text += f"stream = {str(stream).lower()}\n[[upstream]]\n{upstream}\n"
    text += 'latency = "~1500ms cv 0.4"\nanswer = "~200 cv 0.4"\n'
    return parse_scenario(text, name=name)


SHORT: Final = {
    each.name: each
    for each in (
        _short(
            "storm, short",
            client="anthropic-sdk",
            stream=True,
            concurrency="2..16 start 8",
            upstream='concurrency = 16\nstorms = [{ from = "6s", to = "18s", with = "529", share = "80%" }]',
        ),
        _short(
            "outage, short",
            client="claude-code",
            stream=True,
            upstream='storms = [{ from = "6s", to = "18s", with = "connect" }]',
        ),
        _short(
            "requests bind, short",
            client="openai-sdk",
            stream=False,
            limits="requests 30/min",
            upstream='limits = { requests = "30/min" }\nwindow = "fixed"\nrefusals-count = true',
        ),
        _short(
            "output binds, short",
            client="claude-code",
            stream=True,
            limits="output 10k/min",
            upstream='limits = { output = "10k/min" }',
        ),
        _short(
            "faults, short",
            client="codex",
            stream=True,
            agents='silence = "5s"',
            upstream='fail = { "502" = "5%", reset = "5%", break = "5%", stall = "2%", hang = "3%" }\nhang = "2s..4s"',
        ),
    )
}
"""By name."""
