"""Dialect record: all that differs between the APIs of providers.

A new dialect is a new file with such a record, its member of `Api` and its line in `registry.py`. Nothing outside of
this folder compares members of `Api`: what differs is a field here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

import attrs

from hivemind_trio.model import Api

from .counting import CountFormat
from .events import ErrorBody
from .limits import LimitSigns
from .requests import RequestFormat
from .simulated import SimulatedAnswers
from .streams import StreamFormat
from .usage import UsageFormat

EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"
NDJSON: Final = b"application/x-ndjson"
JSON: Final = b"application/json"


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
    output_max: tuple[str, ...] = ()
    """Member that limits the output where the body has none, within others; empty: a limit is not added."""


@final
@attrs.frozen
class KeepAlive:
    """Preamble and empty events of one dialect's streams, so that no client takes the connection for dead.

    Each form was tried with the SDKs that read the dialect (November 2026).
    """

    content_type: bytes
    nothing: bytes

    def fits(self, content_type: str) -> bool:
        """Return True if an answer of this type can follow the bytes already sent."""
        return content_type.partition(";")[0].strip() == self.content_type.partition(b";")[0].decode()


@final
@attrs.frozen(kw_only=True, eq=False)
class Dialect:
    """One API of providers."""

    api: Api

    # Configuration
    base_url: str | None = None
    """Base URL of its one provider. A provider of the dialect's name then needs neither `api` nor `base`."""
    version_in_base: bool = False
    """True if the base URLs of its SDKs have the version: `/v1` of a call is that of the base URL, or stands for it."""
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
    declared_as: tuple[Api, ...] = ()
    """Dialects as which its servers may be declared instead, for they have the paths of those as well."""
    shared_path: str | None = None
    """A path of its own that these have too; None: the usual path."""
    client_headers: Mapping[str, str] = attrs.field(factory=dict)
    """Headers that its clients alone send -> an example of a value. They settle a path that several APIs have."""
    streams_by_default: bool = False
    """True if a request streams unless it says otherwise."""

    # Requests
    request: RequestFormat = attrs.field(factory=RequestFormat)
    credential_header: bytes = b"authorization"
    credential_prefix: bytes = b"Bearer "
    credential_parameter: bytes | None = None
    """Parameter of the query in which its clients may send the credential instead."""
    key_shape: tuple[str, str] | None = None
    """Regular expression of its keys by their public prefix, and what such a word is; None: they have no prefix."""
    model_segments: tuple[str, ...] = ()
    """Segments of a path behind which the model stands."""

    # Counts of prompts
    counts: CountFormat | None = None
    """Endpoint that counts a prompt for nothing; None: its servers have none."""
    has_openai_tokens: bool = False
    """True if models of OpenAI are behind it, whose tokenizers are known."""

    # Answers of the provider
    streams: tuple[StreamFormat, ...] = ()
    """Formats of streams that no other dialect has."""
    usage: tuple[UsageFormat, ...] = ()
    limits: LimitSigns = attrs.field(factory=LimitSigns)
    tokens_on_arrival: Callable[[int, int], int] | None = None
    """Tokens that count at admission, of the input and the largest output, and are not given back; None: what a call
    takes counts as it is taken."""
    counts_cache_reads: bool = True
    """True if what is read from a cache counts against the limit of input tokens."""

    # Answers of our own
    error: Callable[[int, str, str], ErrorBody]
    """Makes an error of a status, a message and our public code of the reason."""
    with_retry: Callable[[ErrorBody, int], ErrorBody] | None = None
    """Adds the seconds after which to come back; None: its clients look for them in the headers alone."""
    error_event: Callable[[ErrorBody, str, str, bool], bytes]
    """Makes the events that end a stream which cannot be finished.

    Of an error, the call's path, its model, and whether the provider's own events have come.
    """
    streams_arrays: bool = False
    """True if a stream may be an array of JSON: one that has not begun can hold an error."""
    keep_alive: Callable[[str, str, str, Mapping[str, str]], KeepAlive | None]
    """Finds the empty events for a path, a query, a model and headers; None: all that could be sent means something."""

    # Telemetry
    telemetry_name: str = ""
    """Name of its provider in the conventions of OpenTelemetry; empty: that of the dialect."""
    operation: str = "chat"
    """Word for a generation in these conventions."""

    # Simulation
    simulated: SimulatedAnswers

    @property
    def telling_headers(self) -> Mapping[str, str]:
        """Return the headers, and a value of each, by which a call on a shared path is of this dialect."""
        name = self.credential_header.decode()
        return self.client_headers if name == "authorization" else {**self.client_headers, name: "x"}
