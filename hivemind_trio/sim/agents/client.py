"""Clients of agents: the retries and timeouts of the SDKs.

After the sources and pages of anthropic-python 0.121 and openai-python 3.3 (`_base_client.py`, `_constants.py`), Claude
Code 2.1 ("Error reference", "Network configuration") and Codex (`model-provider-info/src/lib.rs`), as they stood in
November 2026. Where Claude Code's pages give no figure (how long it backs off), the SDK's own are taken, up to 32 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.sim.provider.profile import MS, SECOND_NS


@final
@attrs.frozen(kw_only=True)
class ClientReply:
    """Final result of a client's call."""

    status: int
    """0: no answer at all."""
    whole: bool = False
    """All of it is there, and it is no error."""
    tokens: int = 0
    """Spent on it, as far as it got."""
    broken: bool = False
    """True if the answer had begun and did not end."""
    timed_out: bool = False
    """The client gave up."""
    retry_after_ns: int | None = None
    final: bool = False
    """`x-should-retry: false`."""
    why: str = ""
    """For people."""


@final
@attrs.frozen(kw_only=True)
class ClientBehaviour:
    """Behaviour of one kind of client."""

    name: str
    retries: int = 0
    """After the first request."""
    first_ns: int = SECOND_NS // 2
    last_ns: int = 8 * SECOND_NS
    """Between two requests where the answer says nothing: twice as long each time, up to this."""
    jitter: tuple[float, float] = (0.75, 1.0)
    """Range of the factor of a pause."""
    heeds_max_ns: int = 60 * SECOND_NS
    """A `retry-after` up to this is kept to; a longer one counts as none."""
    gives_up_over_ns: int | None = None
    """A `retry-after` beyond this is the end."""
    limits_are_fatal: bool = False
    """429 is the end."""
    broken_retries: int = 0
    """Streams that broke and are asked for again."""
    silence_ns: int = 600 * SECOND_NS
    """Longest wait for a byte."""
    known_ns: int | None = None
    """Patience that the proxy assumes from the client's headers (`proxy/request/client_profile.py`); None: no word."""
    known_tries: int = 0
    """Number of retries that the proxy assumes."""
    says_job: bool = False
    """Its requests name the session that they belong to."""

    def pause_ns(self, reply: ClientReply, retried: int, broken: int, chance: Random) -> int | None:
        """Return the time until it asks again; None: it does not, and the call has failed.

        Args:
            retried: Requests after the first one so far.
            broken: How many of these were for streams that broke.
        """
        if reply.broken:
            return self._back_off_ns(retried, chance) if broken < self.broken_retries else None
        if retried - broken >= self.retries or reply.final:
            return None
        if reply.status and not _worth_another(reply.status):
            return None
        if reply.status == 429 and self.limits_are_fatal:
            return None
        said_ns = reply.retry_after_ns
        if said_ns is not None and self.gives_up_over_ns is not None and said_ns > self.gives_up_over_ns:
            return None
        if said_ns is not None and 0 < said_ns <= self.heeds_max_ns:
            return said_ns
        return self._back_off_ns(retried, chance)

    def _back_off_ns(self, retried: int, chance: Random) -> int:
        longest_ns = min(self.last_ns, self.first_ns << min(retried, 20))
        return int(longest_ns * chance.uniform(*self.jitter))


def _worth_another(status: int) -> bool:
    return status in (408, 409, 429) or status >= 500


FRAGILE: Final = ClientBehaviour(name="none", silence_ns=120 * SECOND_NS)
"""The HiveMind paper's agents: the first error is the last."""

CLIENTS: Final[Mapping[str, ClientBehaviour]] = {
    client.name: client
    for client in (
        FRAGILE,
        ClientBehaviour(name="anthropic-sdk", retries=2, known_ns=600 * SECOND_NS, known_tries=2),
        ClientBehaviour(
            name="openai-sdk",
            retries=2,
            heeds_max_ns=120 * SECOND_NS,
            gives_up_over_ns=120 * SECOND_NS,
            known_ns=600 * SECOND_NS,
            known_tries=2,
        ),
        ClientBehaviour(
            name="claude-code",
            retries=10,
            last_ns=32 * SECOND_NS,
            broken_retries=1,
            known_ns=300 * SECOND_NS,
            known_tries=10,
            says_job=True,
        ),
        ClientBehaviour(
            name="codex",
            retries=4,
            first_ns=200 * MS,
            last_ns=32 * SECOND_NS,
            jitter=(0.9, 1.1),
            heeds_max_ns=0,
            limits_are_fatal=True,
            broken_retries=5,
            silence_ns=300 * SECOND_NS,
            known_ns=300 * SECOND_NS,
            known_tries=4,
            says_job=True,
        ),
    )
}
"""By the names that a scenario calls them."""
