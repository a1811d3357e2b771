"""Access to the control API: web pages are refused everywhere, and at an address every request needs a token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import Final, final

import attrs

from hivemind_trio.listen import Scope
from hivemind_trio.model import REJECTIONS
from hivemind_trio.policy import Server
from hivemind_trio.proxy import refused_head

from .routes import ControlAnswer, problem

BEARER: Final = "bearer"
CHALLENGE: Final = (("www-authenticate", 'Bearer realm="hivemind-trio control API"'),)


@final
@attrs.frozen(kw_only=True)
class AccessCheck:
    """Decides on a request by its head; asked before anything else of it is read."""

    server: Callable[[], Server]
    """Settings of now."""
    tokens: Callable[[], Iterable[str]]
    """Tokens of now."""
    setting: str = "admin"
    """Setting of `server` that has the tokens, for people."""
    needs_token: Callable[[], bool] = lambda: True

    def __call__(self, scope: Scope) -> ControlAnswer | None:
        """Return why a request is refused; None: it is not."""
        why = refused_head(scope, self.server())
        if why is not None:
            reason, words = why
            return problem(REJECTIONS[reason].status, words, str(reason))
        if scope.get("server") is None or not self.needs_token():
            return None  # at a Unix socket the file's mode has decided
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if len(given) == 1 and self._is_known(given[0]):
            return None
        detail = (
            f"every request needs the token of `server {{ {self.setting} ... token }}`: `Authorization: Bearer TOKEN`"
        )
        return problem(401, detail, "unauthorized", CHALLENGE)

    def _is_known(self, authorization: bytes) -> bool:
        scheme, _, token = authorization.decode("latin-1").partition(" ")
        if scheme.lower() != BEARER:
            return False
        # Digests are as long as each other, and every token is compared: the time says nothing about any of them.
        given = sha256(token.strip().encode("latin-1")).digest()
        matches = [compare_digest(given, sha256(known.encode()).digest()) for known in self.tokens() if known]
        return any(matches)
