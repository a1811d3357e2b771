"""Errors of an attempt, and the one place that translates foreign exceptions."""

from __future__ import annotations

import socket
import ssl
from enum import Enum, StrEnum, auto
from typing import Final, final

import h11
import httpx2


class UpstreamErrorKind(StrEnum):
    """Kinds of upstream errors. The names are those of a policy's `retry ... on`."""

    CONNECT = "connect"
    """No connection: refused, unreachable, an unknown name, or the connect timeout."""
    TLS = "tls"
    """The handshake failed: an untrusted certificate, a wrong name, no TLS at all."""
    RESET = "reset"
    """The connection ended before a response head, or broke at any time."""
    FIRST_BYTE = "first-byte"
    IDLE = "idle"
    TOTAL = "total"
    PROTOCOL = "protocol"
    """Invalid HTTP/1.1, received or to be sent."""
    TRUNCATED = "truncated"
    """The connection was closed in an orderly way before the body's end."""


@final
class UpstreamError(Exception):
    """The provider failed this attempt; nothing of it is left open."""

    def __init__(
        self, kind: UpstreamErrorKind, message: str, *, sent: bool, cause: str = "", certificate: bool = False
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.sent = sent
        """False: the provider has not seen a byte of the request, so it was certainly not executed."""
        self.message = message
        self.cause = cause
        """The cause in words that name no address; empty: none that is known."""
        self.certificate = certificate
        """The provider's certificate is not accepted: another attempt meets the same one."""


@final
class NotSent(Exception):  # noqa: N818 - no error of anybody's
    """The request may not be sent any more; nothing of it was, and nothing is left open."""


class Stage(Enum):
    """Stages of an attempt."""

    CONNECTING = auto()
    SENT = auto()
    """A connection is there and the request is being written, or has been."""
    HEADED = auto()
    """The response's head has arrived."""


FOREIGN = (OSError, EOFError, h11.ProtocolError, httpx2.TransportError)
"""Exceptions that a transport raises; `ssl.SSLError` is an OSError, EOFError is our own for an early end."""


def translate(error: Exception, stage: Stage) -> UpstreamError:
    """Say in our words what a transport raised at this stage."""
    kind = _kind(error, stage)
    causes = _causes(error)
    return UpstreamError(
        kind,
        f"{kind}: {_innermost(error)}",
        sent=stage is not Stage.CONNECTING,
        cause=_cause(causes) if kind in (UpstreamErrorKind.CONNECT, UpstreamErrorKind.TLS) else "",
        certificate=any(isinstance(one, ssl.SSLCertVerificationError) for one in causes),
    )


_OF_ANOTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes of a certificate for another host name, and for another IP address; its words name the host."""


def _cause(causes: list[BaseException]) -> str:
    for one in causes:
        match one:
            case ssl.SSLCertVerificationError():
                words = "it is for another name" if one.verify_code in _OF_ANOTHER_NAME else one.verify_message
                return f"its TLS certificate is not accepted: {words}"
            case ssl.SSLError():
                return "it does not speak TLS there, or no version that is accepted"
            case socket.gaierror():
                return "its name cannot be resolved"
            case ConnectionRefusedError():
                return "the connection is refused: nothing listens there"
    return ""


def _kind(error: Exception, stage: Stage) -> UpstreamErrorKind:
    early_end = UpstreamErrorKind.TRUNCATED if stage is Stage.HEADED else UpstreamErrorKind.RESET
    if isinstance(error, httpx2.TransportError):
        return _kind_of_stock(error, early_end)
    if isinstance(error, (EOFError, ssl.SSLEOFError)) and stage is not Stage.CONNECTING:
        return early_end
    if isinstance(error, ssl.SSLError):
        return UpstreamErrorKind.TLS if stage is Stage.CONNECTING else UpstreamErrorKind.RESET
    if isinstance(error, OSError):
        return UpstreamErrorKind.CONNECT if stage is Stage.CONNECTING else UpstreamErrorKind.RESET
    return UpstreamErrorKind.PROTOCOL


def _kind_of_stock(error: httpx2.TransportError, early_end: UpstreamErrorKind) -> UpstreamErrorKind:
    match error:
        case httpx2.ConnectError() | httpx2.ProxyError() | httpx2.UnsupportedProtocol():
            broken_tls = any(isinstance(cause, ssl.SSLError) for cause in _causes(error))
            return UpstreamErrorKind.TLS if broken_tls else UpstreamErrorKind.CONNECT
        case httpx2.RemoteProtocolError():
            # An early end has no type of its own there. The words are h11's and httpcore2's; tests/upstream holds them.
            words = str(error)
            if "closed connection" in words or "disconnected" in words:
                return early_end
            return UpstreamErrorKind.PROTOCOL
        case httpx2.LocalProtocolError():
            return UpstreamErrorKind.PROTOCOL
        case _:
            return UpstreamErrorKind.RESET


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and what it was raised from, outermost first.

    Contexts count as well as causes: httpcore2's pool re-raises `from None`, and the reason is behind that.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        first = link.exceptions[0] if isinstance(link, BaseExceptionGroup) else None
        link = link.__cause__ or link.__context__ or first
    return chain


def _innermost(error: Exception) -> str:
    # Trio's "all attempts to connect to HOST:PORT failed" says where, its first cause says why.
    chain = [str(cause) for cause in _causes(error) if not isinstance(cause, BaseExceptionGroup) and str(cause)]
    if not chain:
        return type(error).__name__
    return chain[0] if chain[-1] == chain[0] else f"{chain[0]} ({chain[-1]})"
