"""Client of the control API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self, final

import attrs
import httpx2
import msgspec

from .socket_file import socket_address

TIMEOUT_S: Final = 10.0


@final
class NotReachable(Exception):  # noqa: N818 - of the proxy's, not of the caller's making
    """Nobody answers at the socket."""


@final
class RequestRefused(Exception):  # noqa: N818 - an answer of the API
    """The proxy answered with a problem."""

    def __init__(self, status: int, code: str, detail: str, diagnostics: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.diagnostics = diagnostics
        """Lines about a policy with errors."""
        self.status = status
        self.code = code


@final
@attrs.define(eq=False)
class ControlClient:
    """Asks one proxy, without waiting for others: it is for the command line."""

    where: str
    """Socket or URL of the proxy."""
    _http: httpx2.Client
    _held: ExitStack

    @classmethod
    def at(cls, path: Path, timeout_s: float = TIMEOUT_S) -> Self:
        """Return a client of the proxy that listens at a socket."""
        held = ExitStack()
        try:
            transport = httpx2.HTTPTransport(uds=held.enter_context(socket_address(path)))
        except OSError as error:
            raise NotReachable(f"no proxy listens at {path}: {error.strerror}") from None
        http = held.enter_context(httpx2.Client(transport=transport, base_url="http://localhost", timeout=timeout_s))
        return cls(str(path), http, held)

    @classmethod
    def over_tcp(cls, url: str, token: str) -> Self:
        """Return a client of the proxy at an address."""
        held = ExitStack()
        headers = {"authorization": f"Bearer {token}"}
        http = held.enter_context(httpx2.Client(base_url=url, timeout=TIMEOUT_S, headers=headers, trust_env=False))
        return cls(url, http, held)

    def get(self, path: str, **query: object) -> Any:
        """Return what a resource has.

        Raises:
            NotReachable: Nobody answers.
            RequestRefused: The answer is a problem.
        """
        return self.ask("GET", path, query={name: value for name, value in query.items() if value is not None})

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request, and return the object of its answer.

        Raises:
            NotReachable: Nobody answers.
            RequestRefused: The answer is a problem.
        """
        texts = {name: str(value) for name, value in (query or {}).items()}
        try:
            answer = self._http.request(method, path, params=texts, json=body, headers=headers)
        except (httpx2.HTTPError, OSError) as error:
            raise NotReachable(f"no answer from the proxy at {self.where}: {error}") from None
        try:
            found = msgspec.json.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._foreign(answer.status_code) from None
        if answer.status_code >= 400:
            if not isinstance(found, dict) or "detail" not in found:
                raise self._foreign(answer.status_code)
            diagnostics = found.get("diagnostics", [])
            raise RequestRefused(answer.status_code, found.get("code", ""), found["detail"], diagnostics)
        return found

    def _foreign(self, status: int) -> RequestRefused:
        """Return the problem of a server that is something else."""
        return RequestRefused(status, "", f"{self.where} is no control API: it answers with status {status}")

    def close(self) -> None:
        """Close the connection."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
