"""What binds x how the provider counts x what the policy says of it x whether refused requests are charged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hivemind_trio.policy import Program
from hivemind_trio.sim import Scenario, parse_scenario

from .worlds import compiled

BINDING: Final = {
    "requests": {"requests": "120/min"},
    "input": {"input": "300k/min"},
    "output": {"output": "50k/min"},
    "concurrency": {"requests": "1k/min"},
    "mixed": {"requests": "180/min", "input": "500k/min", "output": "90k/min"},
}
"""What is limited per window."""

CAPS: Final = {"concurrency": 12, "mixed": 16}
"""What is borne at once; 64 where nothing is said."""

TRUTHS: Final = ("bucket", "fixed", "sliding", "gcra", "azure")
DECLARED: Final = ("right", "wrong", "nothing")

AZURE: Final = {
    "requests": {"requests": "20/10s"},
    "input": {"tokens": "900k/min"},
    "concurrency": {"requests": "170/10s"},
    "mixed": {"requests": "30/10s", "tokens": "900k/min"},
}
"""Azure has one limit on tokens, of the prompt and of what a call may put out at most; none on output alone."""

_KINDS: Final = {"bucket": "bucket", "fixed": "fixed", "sliding": "sliding", "azure": "fixed"}
"""What a policy calls it. It has no word for a minute's quota that each second has its part of."""

GCRA_S: Final = {"requests": 1, "input": 6, "output": 6, "tokens": 6}
"""Seconds' worth that may come at once: a second's worth of tokens would hold no prompt."""


class Cell(NamedTuple):
    """One of them."""

    binds: str
    truth: str
    declared: str
    charged: bool

    @property
    def name(self) -> str:
        charged = "charged" if self.charged else "free"
        return f"{self.binds} bind, {self.truth}, declared {self.declared}, refusals {charged}"

    @property
    def limits(self) -> dict[str, str] | None:
        """None: there is no such provider."""
        return AZURE.get(self.binds) if self.truth == "azure" else BINDING[self.binds]

    @property
    def cap(self) -> int:
        return CAPS.get(self.binds, 64)


def cells() -> Iterator[Cell]:
    """All that there are."""
    for binds in BINDING:
        for truth in TRUTHS:
            for declared in DECLARED:
                for charged in (False, True):
                    cell = Cell(binds, truth, declared, charged)
                    if cell.limits is not None:
                        yield cell


def grid(cell: Cell) -> tuple[Scenario, Program]:
    """64 agents of 20 turns; what is declared wrongly is half as much again as there is."""
    limits = cell.limits
    assert limits is not None, f"there is no {cell.name}"
    counted = ", ".join(f"{key} = {_counted(cell.truth, key, rate)}" for key, rate in limits.items())
    text = f"""
    until = "12h"
    [[agents]]
    name = "agent"
    count = 64
    turns = "~20 cv 0.4"
    start = "0s..10s"
    think = "~5s"
    input = "~3k"
    output-max = 4096
    stream = true
    client = "anthropic-sdk"
    [[upstream]]
    latency = "~4s"
    answer = "~500"
    limits = {{ {counted} }}
    window = "{"fixed" if cell.truth == "azure" else cell.truth}"
    {'phase = "random"' if cell.truth in ("fixed", "azure") else ""}
    {'charges = "most"' if cell.truth == "azure" else ""}
    {'says-retry-after = "1s"' if cell.truth == "azure" else ""}
    concurrency = {cell.cap}
    refusals-count = {str(cell.charged).lower()}
    """
    scenario = parse_scenario(text, name=cell.name)
    return scenario, compiled(_policy(cell, limits))


def _policy(cell: Cell, limits: dict[str, str]) -> str:
    match cell.declared:
        case "right":
            concurrency = f"{cell.cap}"
            each = [f"{key} {rate}" for key, rate in limits.items()]
            kind = _KINDS.get(cell.truth)
            declared = f"limits {{ {'; '.join([*each, *([f'window {kind}'] if kind else [])])} }}"
        case "wrong":
            concurrency = f"{int(1.5 * cell.cap)}"
            declared = f"limits {{ {'; '.join(f'{key} {_more(rate)}' for key, rate in limits.items())} }}"
        case _:
            concurrency, declared = "2..64 start 8", ""
    return f"""
    provider simulated {{
      api {"azure" if cell.truth == "azure" else "anthropic"}; base "http://127.0.0.1:9"; concurrency {concurrency}
      {declared}
      retry patient
    }}
    retry patient {{
      on [429, 500, 502..504, 529, connect, reset, first-byte]; attempts 20; backoff 500ms..20s jitter full; ratio 50%
    }}
    server {{ wait silent 15s hold 240s }}
    """


def _amount(rate: str) -> tuple[int, str]:
    """`300k/min`: 300,000 and `min`."""
    much, per = rate.split("/")
    return int(much.removesuffix("k")) * (1_000 if much.endswith("k") else 1), per


def _more(rate: str) -> str:
    """Half as much again."""
    amount, per = _amount(rate)
    return f"{int(amount * 1.5)}/{per}"


def _counted(truth: str, key: str, rate: str) -> str:
    if truth != "gcra":
        return f'"{rate}"'
    amount, _ = _amount(rate)
    burst = max(1, amount * GCRA_S[key] // 60)
    return f'{{ rate = "{rate}", window = "gcra", burst = {burst} }}'
