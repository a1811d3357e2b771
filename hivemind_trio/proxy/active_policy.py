"""The policy that is in force, with what the door needs beside it: secrets, token digests, prices, the time of day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import final
from zoneinfo import ZoneInfo

import attrs

from hivemind_trio.model import Request, SecretRef
from hivemind_trio.policy import Program, ProviderSettings
from hivemind_trio.wire import Recognised

from .request.caller_identity import Tokens
from .request.head import RequestHead


@final
@attrs.define(eq=False)
class InForce:
    """One policy and its secrets; replaced whole at a reload. A call keeps the one that it began with."""

    program: Program
    secrets: Mapping[SecretRef, str] = attrs.field(repr=False)
    tokens: Tokens
    _zone: ZoneInfo | None

    @classmethod
    def of(cls, program: Program, secrets: Mapping[SecretRef, str]) -> InForce:
        """Prepare a policy for the door."""
        zone = ZoneInfo(program.server.timezone) if program.server.timezone else None
        return cls(program, secrets, Tokens(program, secrets), zone)

    def base(self, provider: ProviderSettings) -> str:
        """Return the base URL of a provider, references resolved."""
        if isinstance(provider.base, SecretRef):
            return self.secrets.get(provider.base, "").rstrip("/")
        return provider.base

    def key(self, provider: ProviderSettings, account: str | None = None) -> str | None:
        """Return the key sent instead of the agent's credential; None: the credential is forwarded.

        Args:
            account: The account that shares the provider's limits and has a key of its own.
        """
        return next((self.secrets[ref] for ref in provider.keys_of(account) if self.secrets.get(ref)), None)

    def request(self, head: RequestHead, asked: Recognised, token_agent: str | None, address: int) -> Request:
        """Return the facts that rules are matched against. The one place where a wall clock is read."""
        now = datetime.now(self._zone)
        cost = self.program.estimated_cost(asked.apis, asked.model, asked.tokens_in, asked.tokens_max_out)
        return Request(
            apis=asked.apis,
            token_agent=token_agent,
            claimed=head.claimed(self.program.server.identify),
            client=asked.client,
            model=asked.model,
            method=head.method,
            path=head.path_text,
            stream=asked.stream,
            tools=asked.tools,
            images=asked.images,
            tokens_in=asked.tokens_in,
            tokens_max_out=asked.tokens_max_out,
            tokens_thinking=asked.tokens_thinking,
            cost_microusd=cost,
            hour=now.hour,
            minute=now.minute,
            second=now.second,
            weekday=now.isoweekday(),
            date=now.date().isoformat(),
            client_address=address,
            headers=head.words,
            meta=asked.metadata,
        )
