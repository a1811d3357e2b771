"""Bounds on what one client may use of the listener."""

from __future__ import annotations

from typing import Final, final

import attrs

_S: Final = 1_000_000_000


@final
@attrs.frozen(kw_only=True)
class Bounds:
    """Every bound of the agents' door that concerns bytes, sockets and time; times are nanoseconds."""

    header_bytes: int = 64 * 1024
    """Size of a request's head.

    Beyond it the answer is 431. Agents send long tokens and traces, but nobody sends 64 KiB of them.
    """

    header_ns: int = 30 * _S
    """From the first byte of a request to the end of its head (slow loris); then 408."""

    body_idle_ns: int = 60 * _S
    """Between two pieces of a request's body, counted only while we are willing to read it; then 408."""

    body_buffer_bytes: int = 256 * 1024
    """Body kept for an app that does not ask for it, and bytes of a next request sent ahead of time. Beyond it the
    socket is not read, so that a hang-up is then noticed only when the app reads or writes."""

    write_patience_ns: int = 60 * _S
    """For each 64 KiB that a client does not take from us. Then the connection is reset."""

    connections: int = 4096
    """At most. At the bound an idle connection makes room; if none is idle, new ones wait in the kernel's backlog."""

    keep_alive_ns: int = 120 * _S
    """Time for which a connection may be idle between requests. Longer than the 90 s of Go's clients and the few
    seconds of
    httpx's and undici's, so that it is the client who lets go: a server that closes first races the next request."""

    linger_bytes: int = 32 * 1024 * 1024
    """Bytes still read of a body that was rejected early, so that a TCP reset does not destroy the answer."""

    linger_ns: int = 5 * _S
    """Time for which it is still read, and for which a client may take to answer our FIN."""

    streams: int = 100
    """HTTP/2 streams of one connection at the same time; as many more that were reset may still be ending."""

    turn_ns: int = 50_000_000
    """CPU time of a turn of the loop: while turns stay longer and the loop is never idle, new calls get 503 at once."""

    accepted_per_turn: int = 64
    """Connections that are accepted in one turn of the loop."""

    refused_per_turn: int = 256
    """Connections that are accepted and refused in one turn of an overloaded loop. With those that are kept they take
    less than half of `turn_ns`, or refusing alone would be an overload that never ends."""

    resets: int = 200
    """HTTP/2 streams that one client may reset in a burst, and a tenth as many a second (CVE-2023-44487)."""

    resets_in_all: int = 1_000
    """The same for all connections together; beyond it those that reset most are closed."""

    idle_frames: int = 2_000
    """HTTP/2 frames without content (PING, SETTINGS, PRIORITY, empty DATA) in a burst; a tenth as many a second."""
