"""Checks on a request's head, before its body is read: methods, DNS rebinding and cross-site requests.

A browser sends `Host` with the name that its user's page was loaded from, `Origin` with most requests of a page, and
`Sec-Fetch-Site` with all of them. No agent sends the last two, so a request of a web page is recognised by them.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from hivemind_trio.listen import Scope
from hivemind_trio.model import Reason, rejection_text
from hivemind_trio.policy import Server
from hivemind_trio.wire import METHODS_REJECTED

from .head import RequestHead

LOCAL_DOMAINS: Final = (".localhost", ".internal")
"""Names that public DNS never resolves: RFC 6761, and ICANN's resolution of July 2024."""

FROM_A_PAGE: Final = frozenset({b"cross-site", b"same-site"})
"""Values of `Sec-Fetch-Site` that a page of another origin gives; `none` is an address that a person typed."""

_HOST: Final = re.compile(r"(?:[0-9a-z._~%!$&'()*+,;=-]+|\[[0-9a-z:.%_~-]+\])(?::[0-9]*)?")
"""Host and port of RFC 3986, in lower case; RFC 9112 wants 400 for anything else."""

Refused = tuple[Reason, str]


def refused_head(scope: Scope, server: Server) -> Refused | None:
    """Return why a listener that forwards nothing refuses a request; its routes say which methods they take."""
    return _refused_source(RequestHead.of(scope), server)


def refused(head: RequestHead, server: Server) -> Refused | None:
    """Return why a request is refused because of its head; None: it is not."""
    if head.method in METHODS_REJECTED:
        return Reason.METHOD_REJECTED, rejection_text(Reason.METHOD_REJECTED, method=head.method)
    return _refused_source(head, server)


def _refused_source(head: RequestHead, server: Server) -> Refused | None:
    """Return why a request is refused because of its target, or of where it comes from."""
    if not head.path.startswith(b"/"):
        return Reason.BAD_REQUEST, rejection_text(Reason.BAD_REQUEST, "proxy")
    if head.path.startswith(b"/@"):
        # A name that was not taken off: no provider has such a path, and the call would be nobody's.
        return Reason.BAD_REQUEST, rejection_text(Reason.BAD_REQUEST, "name")
    host = head.first.get(b"host", b"").decode("latin-1").lower()
    if host and _HOST.fullmatch(host) is None:
        return Reason.BAD_REQUEST, rejection_text(Reason.BAD_REQUEST, "host")
    # HTTP/1.0 needs no `Host`, and no browser leaves it out.
    if host and not _is_ours(host, server):
        return Reason.FOREIGN_HOST, rejection_text(Reason.FOREIGN_HOST, name=_name(host))
    origin = head.first.get(b"origin", b"").decode("latin-1").lower()
    if origin and origin.partition("://")[2] != host:
        return Reason.FOREIGN_ORIGIN, rejection_text(Reason.FOREIGN_ORIGIN, header="Origin", value=origin)
    site = head.first.get(b"sec-fetch-site", b"").strip().lower()
    if site in FROM_A_PAGE:
        words = rejection_text(Reason.FOREIGN_ORIGIN, header="Sec-Fetch-Site", value=site.decode())
        return Reason.FOREIGN_ORIGIN, words
    return None


def _name(host: str) -> str:
    """Return a `Host` without its port and without the final dot of DNS."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit() or (":" in name and not name.endswith("]")):
        name = host
    return name.removesuffix(".")


def _is_ours(host: str, server: Server) -> bool:
    name = _name(host)
    if "." not in name and ":" not in name:
        return True
    if name.endswith(LOCAL_DOMAINS) or server.has_host(name):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
