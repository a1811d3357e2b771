"""Choice of the calls that are counted, and of the provider that counts."""

from __future__ import annotations

from typing import final

import attrs

from hivemind_trio.model import Request, Verdict
from hivemind_trio.policy import ProviderSettings, TokenEstimate
from hivemind_trio.proxy.active_policy import InForce
from hivemind_trio.proxy.request.head import RequestHead
from hivemind_trio.proxy.request.provider_credential import with_key
from hivemind_trio.wire import Recognised, Text, path_with_model

from .prompt_counts import Prompt, Sender


@final
@attrs.frozen
class CountTarget:
    """The provider for which a call is counted before it is sent."""

    provider: ProviderSettings
    key: str | None = attrs.field(repr=False)
    """None: the caller's credential is forwarded."""
    base: str
    model: str
    """Name by which the policy knows it."""
    sent_model: str
    """Name by which the provider knows it."""

    @property
    def needs_prefix(self) -> bool:
        """True if counts are kept by the beginnings of prompts."""
        return self.provider.estimate is TokenEstimate.EXACT

    def prompt(self, head: RequestHead, asked: Recognised, body: Text, prefix: str, *, long: bool) -> Prompt:
        """Return the call's prompt, as the provider is to be asked about it."""
        path = head.path_text
        if self.sent_model != asked.model:
            path = path_with_model(head.path, self.sent_model).decode("latin-1")
        _, query = with_key(head, self.provider, self.key)
        encoding = head.words.get("content-encoding", "")
        return Prompt(path, query, self.sent_model, self.model, encoding, body, prefix, asked.tokens_in, long)

    def sender(self, head: RequestHead, alias_key: bytes) -> Sender:
        """Return the place and the credential to ask with."""
        headers, _ = with_key(head, self.provider, self.key)
        own = head.credential.alias(alias_key) if self.key is None and head.credential is not None else ""
        return Sender(self.base, headers, own)


def count_target(rules: InForce, request: Request, *, by_token: bool) -> CountTarget | None:
    """Return where a call that generates is counted; None: it is estimated from its bytes.

    Args:
        by_token: The caller is known by a token, which no provider would take for a credential.
    """
    program = rules.program
    if not program.counts_tokens:
        return None
    decision = program.decide(request)
    provider = program.providers.get(decision.provider or "")
    if provider is None or provider.estimate is TokenEstimate.LEARNED:
        return None
    key = rules.key(next(provider.pools()))
    # Calls that are refused anyway are not counted: strangers could make work with them.
    unsendable = program.rejects_as_unknown(decision.agent) or (key is None and by_token)
    if decision.verdict is Verdict.DENY or unsendable:
        return None
    model = decision.model or request.model
    return CountTarget(provider, key, rules.base(provider), model, program.name_at(model, provider.name) or model)
