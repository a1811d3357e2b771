"""Dialect record: all that differs between the APIs of providers.

A new dialect is a new file with such a record, its member of `Api` and its line in `registry.py`. Nothing outside of
this folder compares members of `Api`: what differs is a field here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from hivemind_trio.model import Api


@final
@attrs.frozen
class EndpointPattern:
    """Paths of one meaning."""

    pattern: str
    """Regular expression of a whole path without its query. Its group `model`: the model that the path names."""
    generates: bool
    """True: it needs a slot when POSTed; False: it is cheap."""
    streams: bool | None = None
    """Streaming as the path says it; None: the body says it."""


@final
@attrs.frozen(kw_only=True, eq=False)
class Dialect:
    """One API of providers."""

    api: Api

    # Configuration
    base_url: str | None = None
    """Base URL of its one provider. A provider of the dialect's name then needs neither `api` nor `base`."""
    key_variables: tuple[str, ...] = ()
    """Environment variables in which its SDKs look for a key, the preferred one first."""
    usual_path: str
    """Path of a generation, for simulated agents."""
    usual_model: str = ""
    """Model that simulated agents ask for where nothing names one; empty: its servers have no usual one."""

    # Recognition of calls
    endpoints: tuple[EndpointPattern, ...] = ()
    """Paths of its own, tried in this order."""
    compatible_with: Mapping[Api, int] = attrs.field(factory=dict)
    """Dialects whose endpoints its servers have as well, and its rank among such servers, the likeliest lowest."""
    client_headers: Mapping[str, str] = attrs.field(factory=dict)
    """Headers that its clients alone send -> an example of a value. They settle a path that several APIs have."""
    streams_by_default: bool = False
    """True if a request streams unless it says otherwise."""

    # Requests
    credential_header: bytes = b"authorization"
    credential_prefix: bytes = b"Bearer "

    @property
    def telling_headers(self) -> Mapping[str, str]:
        """Return the headers, and a value of each, by which a call on a shared path is of this dialect."""
        name = self.credential_header.decode()
        return self.client_headers if name == "authorization" else {**self.client_headers, name: "x"}
