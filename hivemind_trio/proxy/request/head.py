"""The head of a request, as the exchange needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, final

import attrs

from hivemind_trio.listen import Scope
from hivemind_trio.policy import Clue
from hivemind_trio.wire import apis_of

from .caller_identity import Credential, credential, split_prefix
from .header_filter import Headers

NAME_HEADER = b"x-hivemind-agent"


@final
@attrs.frozen(kw_only=True)
class RequestHead:
    """Method, target, headers, and who says what of itself in them."""

    method: str
    path: bytes
    """Percent-encoding as it came, the `/@name` taken off."""
    query: bytes
    headers: Headers
    first: dict[bytes, bytes]
    """Lower-case name -> its first value."""
    words: dict[str, str]
    """The same as text: HTTP's own encoding is Latin-1, and nothing in it fails to decode."""
    claims: Mapping[Clue, str]
    """The agent that the base URL and `x-hivemind-agent` name, as far as they do."""
    credential: Credential | None
    peer: tuple[str, int] | None

    @classmethod
    def of(cls, scope: Scope) -> RequestHead:
        """Read an ASGI scope."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        prefix, path = split_prefix(raw)
        headers: Headers = scope["headers"]
        first: dict[bytes, bytes] = {}
        for name, value in headers:
            first.setdefault(name.lower(), value)
        query: bytes = scope["query_string"]
        words = {name.decode("latin-1"): value.decode("latin-1") for name, value in first.items()}
        claims = {Clue.URL: prefix, Clue.HEADER: first.get(NAME_HEADER, b"").decode("latin-1")}
        client: Any = scope.get("client")
        return cls(
            method=scope["method"],
            path=path,
            query=query,
            headers=headers,
            first=first,
            words=words,
            claims={clue: name for clue, name in claims.items() if name},
            credential=credential(first, query, partial(apis_of, path.decode("latin-1"), words)),
            peer=(client[0], client[1]) if client else None,
        )

    def claimed(self, identify: Iterable[Clue]) -> str | None:
        """Return the agent that the caller says it is, as far as the policy lets it say so; None: it says nothing."""
        return next((self.claims[clue] for clue in identify if clue in self.claims), None)

    @property
    def path_text(self) -> str:
        """For matching and logs."""
        return self.path.decode("latin-1")
