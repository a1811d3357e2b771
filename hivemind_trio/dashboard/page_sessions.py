"""Sessions of browsers: a link that works once becomes a signed cookie."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable
from hashlib import sha256
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Final, final

import attrs

from hivemind_trio.control import AccessCheck, ControlAnswer, ControlRequest, ControlRoute
from hivemind_trio.listen import Scope

COOKIE: Final = "hivemind_session"
LOGIN: Final = "/dashboard/login"

LINK_S: Final = 300
"""Time for which a link works."""
SESSION_S: Final = 12 * 3_600
LINKS_MAX: Final = 100
"""Links that wait to be followed; the oldest end first."""

HTML: Final = "text/html; charset=utf-8"


@final
@attrs.define(eq=False)
class PageSessions:
    """Makes links and checks cookies.

    A cookie holds when its session ends, signed with a key of the admin tokens: it survives a restart, and ends with
    the token. Where there is no admin token the key is of this process.

    Args:
        tokens: Admin tokens of now; the first signs, all are accepted.
        now_s: Wall clock, in seconds.
    """

    _tokens: Callable[[], Iterable[str]]
    _now_s: Callable[[], float]
    _own: bytes = attrs.field(factory=lambda: secrets.token_bytes(32))
    _links: dict[bytes, float] = attrs.field(factory=dict, init=False)
    """Digest of a link's token -> when it ends."""

    def link(self) -> str:
        """Return the token of a new link."""
        token = secrets.token_urlsafe(24)
        now_s = self._now_s()
        self._links = {digest: ends for digest, ends in self._links.items() if ends > now_s}
        while len(self._links) >= LINKS_MAX:
            del self._links[next(iter(self._links))]
        self._links[_digest(token)] = now_s + LINK_S
        return token

    def redeem(self, token: str) -> str | None:
        """Return the value of a cookie for a link's token; None: it was used, has ended, or never was."""
        ends = self._links.pop(_digest(token), 0.0)
        if ends <= self._now_s():
            return None
        until = str(int(self._now_s()) + SESSION_S)
        return f"{until}.{_signature(self._keys()[0], until)}"

    def is_signed_in(self, scope: Scope) -> bool:
        """Return True if a request has the cookie of a session that has not ended."""
        given = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"cookie"]
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load("; ".join(given))
        except CookieError:
            return False
        if COOKIE not in cookies:
            return False
        until, _, signature = cookies[COOKIE].value.partition(".")
        # All keys are tried: the time says nothing about any of them.
        matches = [hmac.compare_digest(signature, _signature(key, until)) for key in self._keys()]
        return any(matches) and until.isdigit() and int(until) > self._now_s()

    def _keys(self) -> list[bytes]:
        keys = [sha256(b"hivemind-trio dashboard\0" + token.encode()).digest() for token in self._tokens() if token]
        return keys or [self._own]


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def _signature(key: bytes, until: str) -> str:
    return hmac.new(key, until.encode("latin-1"), sha256).hexdigest()


def login_route(sessions: PageSessions) -> ControlRoute:
    """Return the route of links."""

    async def login(request: ControlRequest) -> ControlAnswer:
        cookie = sessions.redeem(request.query.get("token", ""))
        if cookie is None:
            return notice(403, "This link has been used, or is older than five minutes.")
        settings = f"Path=/; HttpOnly; SameSite=Strict; Max-Age={SESSION_S}"
        headers = (
            ("location", "/"),
            ("set-cookie", f"{COOKIE}={cookie}; {settings}"),
            ("referrer-policy", "no-referrer"),
        )
        return ControlAnswer(status=303, headers=headers)

    return ControlRoute("GET", LOGIN, login)


def notice(status: int, text: str) -> ControlAnswer:
    """Return a page that says what is wrong, and how to get a link."""
    body = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>hivemind-trio</title>"
        f"<p>{escape(text)}<p><code>hivemind-trio dashboard</code> prints a new link.</html>"
    )
    headers = (("content-security-policy", "default-src 'none'"), ("referrer-policy", "no-referrer"))
    return ControlAnswer(status=status, body=body.encode(), content_type=HTML, headers=headers)


def page_access(check: AccessCheck, sessions: PageSessions) -> Callable[[Scope], ControlAnswer | None]:
    """Return a check that also lets browsers in that are signed in, and those that follow a link."""

    def refuses(scope: Scope) -> ControlAnswer | None:
        answer = check(scope)
        if answer is None or answer.status != 401:
            return answer
        if scope["path"] == LOGIN or sessions.is_signed_in(scope):
            return None
        return notice(401, "You are not signed in, or your session has ended.") if scope["path"] == "/" else answer

    return refuses
