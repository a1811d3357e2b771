"""An agent that asks the proxy itself for something, at a path of the proxy's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from hivemind_trio.model import Reason, Request, rejection_text
from hivemind_trio.policy import Clue, Program

from .caller_identity import Tokens, caller
from .client_address import client_address, counted_address
from .guard import Refused, refused
from .head import RequestHead


@final
@attrs.frozen(kw_only=True)
class Asker:
    """Identity of the agent, found as for calls."""

    name: str
    """Name that it gives itself; empty: none."""
    token_agent: str | None
    """Declared agent whose token it has shown."""
    caller: str
    """Name as the proxy gives it; empty: nothing tells its calls from others'."""
    headers: Mapping[str, str]
    credential: str
    address: str
    """Address that it is counted by, as its calls are."""
    client_address: int
    """Address of the caller as conditions read it."""


def asker_of(head: RequestHead, program: Program, tokens: Tokens, alias_key: bytes) -> Asker | Refused:
    """Return the agent, or why the request is refused: by its head, or as calls of unknown agents are."""
    why = refused(head, program.server)
    if why is not None:
        return why
    address = client_address(head.peer, head.headers, program.server.forwarded_by)
    if address is None:
        return Reason.BAD_REQUEST, rejection_text(Reason.BAD_REQUEST, "forwarded")
    token_agent = tokens.agent(head.headers, head.query)
    request = Request(
        token_agent=token_agent,
        claimed=head.claimed(program.server.identify),
        method=head.method,
        path=head.path_text,
        headers=head.words,
        client_address=address,
    )
    if program.rejects_as_unknown(program.decide(request).agent):
        return Reason.UNKNOWN_AGENT, rejection_text(Reason.UNKNOWN_AGENT)
    # By its connection it would be another one than at its calls.
    clues = [clue for clue in program.server.identify if clue not in (Clue.CONNECTION, Clue.CLIENT, Clue.USER)]
    found = caller(clues, head.words, head.claims, "", head.credential, head.peer, alias_key)
    return Asker(
        name=request.claimed or "",
        token_agent=token_agent,
        caller="" if found.startswith("@") else found,
        headers=head.words,
        credential=head.credential.alias(alias_key) if head.credential is not None else "",
        address=counted_address(head.peer, address),
        client_address=address,
    )
