"""Identity of the caller: proven by a token, or claimed."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, final
from urllib.parse import unquote_to_bytes

import attrs

from hivemind_trio.dialects import CREDENTIAL_HEADERS, CREDENTIAL_PARAMETERS, credential_places
from hivemind_trio.model import Api, SecretRef, shown_credential
from hivemind_trio.policy import Clue, Program

from .header_filter import Headers

_THIS_MACHINE: Final = "127.0.0.1"
_PREFIX: Final = re.compile(rb"/@([A-Za-z0-9._~-]{1,64})(?=/|$)")

SESSION_HEADERS: Final = (
    ("x-claude-code-session-id", "x-claude-code-agent-id"),
    ("session-id", "thread-id"),
    ("session_id", "thread_id"),
    ("conversation_id", ""),
    ("x-session-id", ""),
)
"""Headers that name a session: Claude Code, Codex (two spellings), opencode."""


JOB_HEADER: Final = "x-hivemind-job"


def split_prefix(path: bytes) -> tuple[str | None, bytes]:
    """`/@ci/v1/messages` is agent `ci` calling `/v1/messages`. The path's bytes are not touched otherwise."""
    match = _PREFIX.match(path)
    if match is None:
        return None, path
    return match[1].decode("ascii"), path[match.end() :] or b"/"


@final
@attrs.frozen
class Credential:
    """Credential of the caller, and where it was presented. The value is never printed."""

    value: bytes = attrs.field(repr=False)

    @property
    def digest(self) -> bytes:
        """Digest that tells credentials apart within this process; it is written nowhere."""
        return hashlib.sha256(self.value).digest()

    def alias(self, key: bytes) -> str:
        """Return a name for the credential in logs, state and journal.

        Who does not have the key cannot try guesses on it, as could be done with a plain hash of a short token.
        """
        return hashlib.blake2b(self.value, key=key, digest_size=16).hexdigest()


def credential(
    headers: Mapping[bytes, bytes], query: bytes, apis: Callable[[], Iterable[Api]] = tuple
) -> Credential | None:
    """Return the credential of a request, in any of the places where SDKs put one; None without any.

    Args:
        apis: Returns the dialects of its path, likeliest first; of several credentials it is what their providers read.
    """
    presented = list(_presented([(name, headers[name]) for name in CREDENTIAL_HEADERS if name in headers], query))
    if len(presented) > 1:
        places = {place: number for number, place in reversed([*enumerate(credential_places(apis()))])}
        presented.sort(key=lambda one: places.get(one[0], len(places)))
    return presented[0][1] if presented else None


def _presented(headers: Iterable[tuple[bytes, bytes]], query: bytes) -> Iterator[tuple[bytes, Credential]]:
    """Yield the header or parameter and the credential in it."""
    for name, value in headers:
        found = _of_header(name, value)
        if found is not None:
            yield name.lower(), found
    for part in query.split(b"&"):
        name, found = _of_parameter(part)
        if found is not None:
            yield name, found


def _of_header(name: bytes, value: bytes) -> Credential | None:
    """Return the credential in a header; None: it has none.

    `Authorization: Basic` (RFC 7617) is for a gateway before the provider: no provider reads its key there.
    """
    lower = name.lower()
    if lower not in CREDENTIAL_HEADERS or not value:
        return None
    if lower == b"authorization":
        scheme, _, rest = value.replace(b"\t", b" ").partition(b" ")
        if scheme.lower() == b"basic":
            return None
        value = rest.strip() if scheme.lower() == b"bearer" else value
    return Credential(value)


def _of_parameter(part: bytes) -> tuple[bytes, Credential | None]:
    """Return the name of a parameter of the query, decoded, and the credential in it; None: it has none."""
    name, _, value = part.partition(b"=")
    if b"%" in name:
        name = unquote_to_bytes(name)
    return name, Credential(unquote_to_bytes(value)) if name in CREDENTIAL_PARAMETERS and value else None


def without_key(query: bytes) -> bytes:
    """Return a query without the parameters that carry credentials; the rest byte for byte."""
    parts = [part for part in query.split(b"&") if _of_parameter(part)[0] not in CREDENTIAL_PARAMETERS]
    return b"&".join(parts)


def with_one_credential(headers: Headers, query: bytes, counted: Credential) -> tuple[Headers, bytes]:
    """Return headers and query without any credential but this one.

    The provider decides which of several it reads. Budgets and plans count by one, so no other goes upstream.
    """
    kept = [(name, value) for name, value in headers if _of_header(name, value) in (None, counted)]
    return kept, b"&".join(part for part in query.split(b"&") if _of_parameter(part)[1] in (None, counted))


@final
class Tokens:
    """The agents' own tokens, by digest."""

    def __init__(self, program: Program, secrets: Mapping[SecretRef, str]) -> None:
        self._agents: dict[bytes, str] = {}
        for agent in program.agents.values():
            for ref in agent.tokens:
                if secrets.get(ref):
                    # Of two agents with one token the first one has it (HM306), as with `agent ... when`.
                    self._agents.setdefault(Credential(secrets[ref].encode()).digest, agent.name)

    def agent(self, headers: Headers, query: bytes) -> str | None:
        """Return the agent whose token is among the presented credentials; None: there is none.

        All, and not the first alone: one that is overlooked would go upstream.
        """
        if not self._agents:
            return None
        # The key is a digest, so how long the look-up takes says nothing about a token.
        names = (self._agents.get(one.digest) for _, one in _presented(headers, query))
        return next((name for name in names if name is not None), None)


def job(headers: Mapping[str, str], user: str) -> str:
    """Return the unit of work that an agent gives for a call; empty: none.

    `x-hivemind-job` comes first: whoever starts agents may tie their calls together.
    """
    return headers.get(JOB_HEADER, "")[:64] or _session(headers) or user[:64]


def session(headers: Mapping[str, str]) -> str:
    """Return the session that an agent names by itself, without its thread; empty: it names none."""
    return (_session(headers) or "").partition("/")[0]


def _session(headers: Mapping[str, str]) -> str | None:
    for name, part in SESSION_HEADERS:
        if name in headers:
            return f"{headers[name][:64]}/{headers.get(part, '')[:64]}"
    return None


def network(peer: tuple[str, int] | None) -> str:
    """Return what a caller is counted by: an IPv4 address, or the first 64 bits of an IPv6 one.

    Every program of this machine may take any loopback address, so they count as one.
    """
    if peer is None:
        return "local"
    host = peer[0].partition("%")[0]
    if ":" not in host:
        return _THIS_MACHINE if host.startswith("127.") else host
    address = ipaddress.IPv6Address(host)
    mapped = address.ipv4_mapped
    if address.is_loopback or (mapped is not None and mapped.is_loopback):
        return _THIS_MACHINE
    return str(mapped) if mapped is not None else str(ipaddress.IPv6Network((address, 64), strict=False))


def caller(
    identify: Iterable[Clue],
    headers: Mapping[str, str],
    claims: Mapping[Clue, str],
    user: str,
    presented: Credential | None,
    peer: tuple[str, int] | None,
    key: bytes,
) -> str:
    """Return a name to be fair to where the policy knows only `unknown`; never for authorisation.

    Scoped by the credential, so that nobody can pass for another one's session. Callers of one credential whom nothing
    tells apart are one.

    Args:
        identify: What may tell them apart, in order.
        key: Of aliases.
    """
    scope = shown_credential(presented.alias(key)) if presented is not None else "-"
    for clue in identify:
        name = _by(clue, headers, claims, user, peer)
        if name is not None:
            return f"{name}@{scope}"
    return f"@{scope}"


def _by(
    clue: Clue, headers: Mapping[str, str], claims: Mapping[Clue, str], user: str, peer: tuple[str, int] | None
) -> str | None:
    match clue:
        case Clue.URL | Clue.HEADER:
            return claims[clue][:64] if clue in claims else None
        case Clue.SESSION:
            return _session(headers)
        case Clue.USER:
            return user[:64] or None
        case Clue.CLIENT:
            return headers.get("user-agent", "")[:64] or None
        case Clue.CONNECTION:
            return f"{peer[0]}:{peer[1]}" if peer is not None else None
