"""Facts of a call that a policy can refer to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import final

import attrs

from .addresses import LOOPBACK


class Api(StrEnum):
    """The dialect a provider speaks, as `api NAME` in a policy."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    AZURE = "azure"
    GEMINI = "gemini"
    MISTRAL = "mistral"
    OLLAMA = "ollama"
    VLLM = "vllm"
    GENERIC = "generic"


class CountedBy(StrEnum):
    """Counter of the tokens of a prompt."""

    TOKENIZER = "tokenizer"
    PROVIDER = "provider"
    """The free endpoint of the provider; calls of one beginning share one count."""


@final
@attrs.frozen(kw_only=True)
class Request:
    """The facts a match expression reads, taken once when the call arrives.

    Total by construction: what the call does not say has the value that `language.md` gives it
    (text `""`, number 0, flag false, `attempt` 1), so no expression can fail.
    """

    apis: tuple[Api, ...] = ()
    """The dialects that this path may belong to, likeliest first; empty: unrecognised."""
    token_agent: str | None = None
    """The declared agent whose token the call carried. Proven, unlike `claimed`."""
    claimed: str | None = None
    """The agent that the base URL's `/@name` or `x-hivemind-agent` names."""
    client: str = ""
    """Name of the program that calls, as far as its tokens are known apart: `codex`; no condition reads it."""
    model: str = ""
    method: str = "POST"
    path: str = ""
    """Without the `/@name` prefix and without the query."""
    stream: bool = False
    tools: bool = False
    images: bool = False
    tokens_in: int = 0
    """Estimated."""
    tokens_counted: int = 0
    """Input tokens as counted before it was sent; 0: they were not. No condition reads it."""
    counted_by: CountedBy | None = None
    tokens_max_out: int = 0
    tokens_thinking: int = 0
    """Budget of thinking that the limit of the output must exceed; no condition reads it."""
    cost_microusd: int = 0
    """Estimated: input plus `tokens_max_out` at the model's price; 0 where no price is declared."""
    attempt: int = 1
    hour: int = 0
    """In the policy's time zone, 0 to 23."""
    minute: int = 0
    second: int = 0
    """No condition reads it; by it the scheduler knows when the next minute begins."""
    weekday: int = 0
    """1 is Monday, 7 is Sunday."""
    date: str = ""
    """`2026-12-25`, in the same time zone; empty: it is not known."""
    client_address: int = LOOPBACK
    """Address of the caller, as a number (`addresses.py`)."""
    plan_session: int = 0
    """Used share of the account's plan, in millionths, as last read; 0: nothing is known. The scheduler fills it in."""
    plan_week: int = 0
    plan_month: int = 0
    plan_overage: bool = False
    """The account pays beyond its plan."""
    session_context: int = 0
    """Tokens of the session's last call, input and output, as the scheduler fills them in; 0: there was none."""
    session_turns: int = 0
    """Calls of the session that were served."""
    session_cost: int = 0
    """Cost of the session so far, in millionths of a dollar."""
    session_age: int = 0
    """Nanoseconds since the session's first call."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Lower-case names; of a repeated header the first value."""
    meta: Mapping[str, str] = attrs.field(factory=dict)
    """The body's `metadata` object, text values only."""

    @property
    def time(self) -> int:
        """Minutes since midnight."""
        return self.hour * 60 + self.minute

    @property
    def tokens_total(self) -> int:
        """Input and the most it may put out."""
        return self.tokens_in + self.tokens_max_out
