"""Counts of prompts before they are scheduled, where a provider has `estimate tokenizer` or `estimate exact`.

A count never fails a call, and holds it up for a bounded time: what cannot be counted is estimated as without it. The
provider is asked once for each beginning of a prompt; what it says is kept as tokens for each that was estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, final

import attrs
import trio

from hivemind_trio.dialects import DIALECTS
from hivemind_trio.dialects.counting import openai_encoding
from hivemind_trio.model import CountedBy
from hivemind_trio.policy import ProviderSettings, Timeouts, TokenEstimate
from hivemind_trio.proxy.request.header_filter import Headers
from hivemind_trio.proxy.stepped_work import StepQueue
from hivemind_trio.upstream import NotSent, Upstream, UpstreamError
from hivemind_trio.wire import CountRequest, Text, count_request, counted_answer, counting

from .tokenizer import TokenizerNotInstalled, counter

SECOND_NS: Final = 1_000_000_000

BOUND_S: Final = 2.0
"""Longest time that a call waits for a count."""

REST_S: Final = 60.0
"""After a failure the provider is not asked for so long, with the same credential."""

PREFIXES_MAX: Final = 4_096
CREDENTIALS_MAX: Final = 1_024
ANSWER_MAX: Final = 64 * 1024

_BOUND_NS: Final = int(BOUND_S * SECOND_NS)
_TIMEOUTS: Final = Timeouts(connect_ns=_BOUND_NS, first_byte_ns=_BOUND_NS, idle_ns=_BOUND_NS, total_ns=_BOUND_NS)

_DROPPED: Final = frozenset({b"accept-encoding", b"content-encoding", b"content-type", b"content-length"})


@final
@attrs.frozen
class Prompt:
    """A call's prompt, as far as a count needs it."""

    path: str
    query: bytes
    model: str
    """Name that the provider is sent."""
    known_as: str
    """Name by which the policy knows the same model: that of a deployment tells no tokenizer."""
    encoding: str
    body: Text = attrs.field(repr=False)
    prefix: str
    """Digest of its beginning; empty: it has none."""
    estimated: int
    """Tokens, from its bytes."""
    long: bool


@final
@attrs.frozen
class Sender:
    """Place and credential that a provider is asked with."""

    base: str
    headers: Headers = attrs.field(repr=False)
    credential: str
    """Alias of the caller's own; empty: it is the provider's key."""


@final
@attrs.define(eq=False)
class PromptCounts:
    """Counts of prompts, for all calls of a proxy."""

    upstream: Upstream
    turns: StepQueue
    errors: dict[str, str] = attrs.field(factory=dict, init=False)
    """Provider -> why its last count failed; those whose last count did not are not here."""
    _ratios: dict[tuple[str, str, str], float] = attrs.field(factory=dict, init=False)
    """(provider, model, prefix) -> tokens for each that was estimated; those used last."""
    _counters: dict[str, Callable[[str], int]] = attrs.field(factory=dict, init=False)
    """Encoding -> what counts by it."""
    _loading: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _asking: dict[tuple[str, str, str], trio.Event] = attrs.field(factory=dict, init=False)
    _rests_until: dict[tuple[str, str], float] = attrs.field(factory=dict, init=False)
    """(provider, credential) -> time of Trio's clock."""

    async def of(self, provider: ProviderSettings, prompt: Prompt, sender: Sender) -> tuple[int, CountedBy] | None:
        """Return the tokens of a prompt, and who has counted them; None: they are to be estimated."""
        match provider.estimate:
            case TokenEstimate.LEARNED:
                return None
            case TokenEstimate.TOKENIZER:
                count = await self._by_tokenizer(provider, prompt)
                return (count, CountedBy.TOKENIZER) if count else None
            case TokenEstimate.EXACT:
                ratio = await self._by_provider(provider, prompt, sender)
                return (max(1, round(prompt.estimated * ratio)), CountedBy.PROVIDER) if ratio else None

    async def _by_tokenizer(self, provider: ProviderSettings, prompt: Prompt) -> int | None:
        encoding = openai_encoding(prompt.model) or openai_encoding(prompt.known_as)
        if not DIALECTS[provider.api].has_openai_tokens or encoding is None:
            return None
        if encoding not in self._counters:
            try:
                await self._load(encoding)
            except TokenizerNotInstalled as error:
                self.errors[provider.name] = f"{error}; {error.help}"
                return None
        self.errors.pop(provider.name, None)
        count = self._counters.get(encoding)
        if count is None:
            return None
        return await self.turns.of(counting(prompt.encoding, prompt.body, count), long=prompt.long)

    async def _load(self, encoding: str) -> None:
        """Have the ranks read beside the loop; they come too late for this call if that takes long."""
        with trio.move_on_after(BOUND_S):
            async with self._loading:
                if encoding not in self._counters:
                    loading = partial(counter, encoding)
                    self._counters[encoding] = await trio.to_thread.run_sync(loading, abandon_on_cancel=True)

    async def _by_provider(self, provider: ProviderSettings, prompt: Prompt, sender: Sender) -> float | None:
        form, key = DIALECTS[provider.api].counts, (provider.name, prompt.model, prompt.prefix)
        if form is None or not prompt.prefix or not prompt.estimated:
            return None
        if key in self._ratios:
            ratio = self._ratios[key] = self._ratios.pop(key)
            return ratio
        asker = provider.name, sender.credential
        if self._rests_until.get(asker, 0.0) > trio.current_time():
            return None
        with trio.move_on_after(BOUND_S) as bound:
            if key in self._asking:
                await self._asking[key].wait()
            else:
                self._asking[key] = trio.Event()
                try:
                    asked = count_request(form, prompt.path, prompt.model, prompt.encoding, prompt.body)
                    await self._ask(provider, prompt, sender, await self.turns.of(asked, long=prompt.long))
                finally:
                    self._asking.pop(key).set()
        if bound.cancelled_caught:
            self._failed(asker, f"no answer within {BOUND_S:g} s")
        return self._ratios.get(key)

    async def _ask(
        self, provider: ProviderSettings, prompt: Prompt, sender: Sender, asked: CountRequest | None
    ) -> None:
        form, asker = DIALECTS[provider.api].counts, (provider.name, sender.credential)
        if asked is None or form is None:
            return
        headers = [(name, value) for name, value in sender.headers if name.lower() not in _DROPPED]
        headers += [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        query = b"&".join(one for one in prompt.query.split(b"&") if one and not one.startswith(b"alt="))
        try:
            async with self.upstream.send(
                base=sender.base,
                method="POST",
                target=asked.path.encode() + (b"?" + query if query else b""),
                headers=headers,
                body=asked.body,
                timeouts=_TIMEOUTS,
            ) as response:
                status, body = response.status, b""
                async for piece in response:
                    body += piece
                    if len(body) > ANSWER_MAX:
                        break
        except (UpstreamError, NotSent) as error:
            self._failed(asker, f"{error}")
            return
        count = counted_answer(form, body) if status == 200 else None
        if count is None:
            self._failed(asker, f"{asked.path} answered {status}" + (" without a count" if status == 200 else ""))
            return
        self.errors.pop(provider.name, None)
        self._ratios[provider.name, prompt.model, prompt.prefix] = count / prompt.estimated
        if len(self._ratios) > PREFIXES_MAX:
            del self._ratios[next(iter(self._ratios))]

    def _failed(self, asker: tuple[str, str], why: str) -> None:
        self.errors[asker[0]] = why
        self._rests_until.pop(asker, None)
        self._rests_until[asker] = trio.current_time() + REST_S
        if len(self._rests_until) > CREDENTIALS_MAX:
            del self._rests_until[next(iter(self._rests_until))]
