"""Usage of an answer, its model and end, and errors after its 200, read while it passes.

An answer is passed on as it comes; this looks at a copy. Usage stands at the end of a plain body, in an event of a
stream, or in a line of NDJSON, once or again and again with growing figures: the largest of each figure counts. After
the API references of Anthropic (Messages), OpenAI (Chat Completions, Completions, Responses, Embeddings), Google
(`UsageMetadata`) and Ollama, as they stood in November 2026. Total: any bytes have an answer.

The model that answered, and why it stopped, are read from the lines that say usage and from the one that closes a
stream, so that they cost nothing elsewhere.
"""

from __future__ import annotations

import json
import re
from typing import Final, final

import attrs

from hivemind_trio.dialects import IN_ORDER, TokenCounts
from hivemind_trio.model import AnswerFacts, Usage
from hivemind_trio.wire.body.content_codings import Inflate, Undecodable, inflater

from .error_signals import Signal
from .event_streams import ArrayReader, Stream
from .stream_errors import MARK, StreamError, body_error, line_error

LINE_MAX: Final = 256 * 1024
"""Largest part of a stream's line that is kept.

A line with a whole answer, as OpenAI's last event, has its usage last.
"""

TAIL_MAX: Final = 64 * 1024
"""Largest tail of a plain body that is kept."""

TYPE_MAX: Final = 4 * 1024
"""Largest beginning of a long line that is kept: its type stands there."""

OBJECT_MAX: Final = 4 * 1024
"""Largest object that holds usage."""

_STREAMS: Final = ("text/event-stream", "application/x-ndjson")
_ARRAY: Final = "application/json"
_WORD_MAX: Final = 64
"""Longest mark of a closing event, which may come in two pieces."""
_FORMATS: Final = tuple(one for dialect in IN_ORDER for one in dialect.usage)
_MARKS: Final = tuple(dict.fromkeys(mark for one in _FORMATS for mark in one.marks))
_DELTAS: Final = tuple(dict.fromkeys(mark for one in _FORMATS for mark in one.deltas))
_PROVISIONAL: Final = tuple(one.provisional for one in _FORMATS if one.provisional is not None)
_OBJECT: Final = re.compile(
    rb'"(?:%s)"\s*:\s*(?=\{)' % b"|".join(dict.fromkeys(name.encode() for one in _FORMATS for name in one.objects))
)
_READERS: Final = tuple(dict.fromkeys(one.read for one in _FORMATS if one.read is not None))
_LINE_READERS: Final = tuple(one.read_line for one in _FORMATS if one.read_line is not None)
_MODEL: Final = re.compile(
    rb'"(?:%s)"\s{0,8}:\s{0,8}"([^"\\\x00-\x1f\x7f-\xff]{1,200})"'
    % b"|".join(dict.fromkeys(one.model.encode() for one in _FORMATS))
)
_FINISHES: Final = {one.finish.encode(): one.is_single for one in _FORMATS if one.finish is not None}
_FINISH: Final = re.compile(rb'"(%s)"\s{0,8}:\s{0,8}"([\w.:-]{1,64})"' % b"|".join(_FINISHES), re.ASCII)
FINISHES_MAX: Final = 8
"""Reasons of one answer that are kept."""
_DECODER: Final = json.JSONDecoder()
_BEGINS_AS_ERROR: Final = re.compile(rb'\{\s*"(?:error"\s*:\s*[{"]|(?:type|object)"\s*:\s*"error")')
_NO_COUNTS: Final = TokenCounts()


@final
@attrs.define
class _Said:
    """Figures that have been said, the largest of each kind."""

    input: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    output: int | None = None

    def take(self, other: TokenCounts) -> None:
        self.input = _larger(self.input, other.input)
        self.output = _larger(self.output, other.output)
        self.cache_read = max(self.cache_read, other.cache_read)
        self.cache_write = max(self.cache_write, other.cache_write)


@final
@attrs.define
class _Told:
    """Model and reasons that have been told."""

    model: str = ""
    reasons: list[str] = attrs.field(factory=list)

    def take(self, text: bytes, *, is_cut: bool) -> None:
        """Read a text; where its beginning is cut off, what stands there cannot be told from the answer's content."""
        if not self.model and not is_cut and (found := _MODEL.search(text)) is not None:
            self.model = found[1].decode("ascii")
        for name, reason in _FINISH.findall(text):
            if _FINISHES[name]:
                self.reasons.clear()
            if len(self.reasons) < FINISHES_MAX:
                self.reasons.append(reason.decode("ascii"))


@final
@attrs.define(eq=False)
class UsageMeter:
    """Reader of the usage of one answer.

    `feed` it each piece of the body as received, and ask for `usage` and `error` once, at the end or before it.
    """

    content_type: str
    content_encoding: str = ""
    may_be_array: bool = False
    """True if JSON may be a stream: an array whose elements are events."""
    _inflate: Inflate | None = attrs.field(init=False)
    _streams: bool = attrs.field(init=False)
    _stream: Stream | None = attrs.field(init=False)
    """Progress of an event stream or NDJSON; None: a plain answer, or its coding is unknown."""
    _array: ArrayReader | None = attrs.field(default=None, init=False)
    """Reader of a stream that is an array; None: it is none."""
    _events: bool = attrs.field(init=False)
    """True if it is an event stream, and not NDJSON."""
    unread: bytes = attrs.field(default=b"", init=False)
    """The line that has not ended, or the tail of a plain body."""
    _cut: bool = attrs.field(default=False, init=False)
    """The beginning of the line has been dropped."""
    _deltas: int = attrs.field(default=0, init=False)
    _said: _Said = attrs.field(factory=_Said, init=False)
    _told: _Told = attrs.field(factory=_Told, init=False)
    _is_tail: bool = attrs.field(default=False, init=False)
    """The beginning of a plain body has been dropped."""
    _error: Signal | None = attrs.field(default=None, init=False)
    """The first."""
    _stray: bytes = attrs.field(default=b"", init=False)
    """Bytes in an event stream that are no event: Google's errors may be."""
    _objects: bool = attrs.field(default=False, init=False)
    """True if an object has arrived that could hold an answer."""

    def __attrs_post_init__(self) -> None:
        self._inflate = inflater(self.content_encoding)
        content_type = self.content_type.strip().lower()
        self._streams, self._events = content_type.startswith(_STREAMS), content_type.startswith(_STREAMS[0])
        if self.may_be_array and content_type.startswith(_ARRAY):
            self._array = ArrayReader()
        has_events = self._streams or self._array is not None
        self._stream = Stream(self._events) if has_events and self._inflate is not None else None

    @property
    def begun(self) -> bool:
        """True once a content event or the closing event has come; always true for plain answers."""
        return self._stream is None or self._stream.begun

    def begin(self) -> None:
        """Take the preamble for over, whatever has come."""
        if self._stream is not None:
            self._stream.begin()

    @property
    def refusal(self) -> StreamError | None:
        """Error before the first content event, as far as whole lines have come; None: there is none."""
        return None if self._stream is None else self._stream.error

    @property
    def may_be_error(self) -> bool:
        """True if a plain body begins as an error object does, or has not begun."""
        if self._stream is not None or self._streams or self._inflate is None or self._is_tail:
            return False
        text = self.unread.lstrip()
        # Blanks keep the connection alive: they are for the agent at once.
        return _BEGINS_AS_ERROR.match(text) is not None if text else not self.unread

    def whole_error(self) -> StreamError | None:
        """Return the error that a plain body, read to its end, is; None: it is none."""
        return body_error(self.unread) if self.unread and self.may_be_error else None

    @property
    def unfinished(self) -> bool:
        """True if a stream of a known form, read to its end, has no closing event and no error."""
        if self.error() is not None or self._stream is None:
            return False
        return not self._stream.closed and (self._stream.format is not None or not self._stream.begun)

    def last_refusal(self) -> StreamError | None:
        """Return `refusal` at the end of the stream, where an error may be in an unfinished line."""
        self._flush()
        if self._stream is None or self._stream.begun:
            return None
        return self._stream.error or (body_error(self._stray) if self._stray else None)

    def feed(self, piece: bytes) -> None:
        """Take the next piece into account."""
        if self._inflate is None:
            return
        try:
            text = self._inflate(piece)
        except Undecodable:
            self._inflate, self.unread, self._stream = None, b"", None
            return
        self._objects = self._objects or b"{" in text
        if not self._streams:
            if self._array is not None:
                self._take_elements(self._array, text)
            self._is_tail |= len(self.unread) + len(text) > TAIL_MAX
            self.unread = (self.unread + text)[-TAIL_MAX:]
            return
        whole, newline, rest = text.rpartition(b"\n")
        if newline:
            self._take(self.unread + whole)
            self.unread = rest
        else:
            self.unread += rest
        if self._stream is not None and not self._stream.begun and b"\r" in self.unread[:-1]:
            self._stream.begin()  # lines that end with a bare CR are not read here
        if len(self.unread) > LINE_MAX:
            self._shorten()

    def error(self) -> Signal | None:
        """Return the signal of the error in it; None: there is none so far."""
        self._flush()
        if self._error is None and self._stray:
            found = body_error(self._stray)
            self._error = None if found is None else found.signal
        return self._error

    def usage(self, *, whole: bool = False) -> Usage | None:
        """Return the usage so far; None: unknown.

        Args:
            whole: The answer has come to its end. Then one that holds not a single object is known to be no answer.
        """
        self._flush()
        said = self._said
        output = said.output
        if output is None and not self._streams and said.input is not None:
            output = 0  # embeddings
        if said.input is None and output is None and not self._deltas:
            return Usage(output=0, exact=False) if whole and self._inflate is not None and not self._objects else None
        return Usage(
            input=said.input,
            cache_read=said.cache_read,
            cache_write=said.cache_write,
            output=self._deltas if output is None else output,
            exact=said.input is not None and output is not None,
        )

    def facts(self) -> AnswerFacts:
        """Return the model that answered and why it stopped, as far as it has been told."""
        self._flush()
        return AnswerFacts(self._told.model, tuple(self._told.reasons))

    def _take_elements(self, array: ArrayReader, text: bytes) -> None:
        """Read the events of an array up to the first content, and then look for the closing one."""
        if self._stream is None:
            return
        if self._stream.begun:
            self._stream.look(self.unread[-_WORD_MAX:] + text)
            return
        for element in array.take(text):
            self._stream.take(element)
        if array.is_array is False:
            self._stream = None  # a plain answer after all
        elif self._stream.begun:
            self._stream.look(text)

    def _flush(self) -> None:
        self._take(self.unread)
        self.unread = b""

    def _shorten(self) -> None:
        """Keep the end of a line that is too long; its beginning may name the closing event."""
        if not self._cut and self._stream is not None:
            self._stream.look(self.unread[:TYPE_MAX])
        self._cut = True
        self.unread = self.unread[-LINE_MAX:]

    def _take(self, lines: bytes) -> None:
        is_cut, self._cut = self._cut or self._is_tail, False
        was_closed = self._stream is None or self._stream.closed
        if self._stream is not None and self._array is None:
            self._stream.take(lines)
        self._deltas += sum(map(lines.count, _DELTAS))
        if any(mark in lines for mark in _MARKS):
            for line in lines.split(b"\n") if self._streams else (lines,):
                if any(mark in line for mark in _MARKS):
                    self._said.take(_read(line))
                    self._told.take(line, is_cut=is_cut)
        if not was_closed and self._stream is not None and self._stream.closed and not self._told.reasons:
            self._told.take(lines, is_cut=is_cut)
        if MARK in lines and self._error is None:
            self._error = self._find(lines)
        if self._events and len(self._stray) < TAIL_MAX:
            self._keep_stray(lines)

    def _find(self, lines: bytes) -> Signal | None:
        if not self._streams:
            found = body_error(lines)
            return None if found is None else found.signal
        errors = map(line_error, lines.split(b"\n"))
        return next((error for error in errors if error is not None), None)

    def _keep_stray(self, lines: bytes) -> None:
        if not self._stray and not lines.startswith(b"{"):
            begins = lines.find(b"\n{")
            if begins < 0:
                return
            lines = lines[begins:]
        self._stray = (self._stray + lines + b"\n")[:TAIL_MAX]


def _read(text: bytes) -> TokenCounts:
    """Return the contents of the last object that has usage."""
    for match in reversed(list(_OBJECT.finditer(text))):
        said = _of_object(text[match.end() : match.end() + OBJECT_MAX])
        if said is not None:
            for mark in _PROVISIONAL:
                if mark in text:
                    return TokenCounts(input=said.input, cache_read=said.cache_read, cache_write=said.cache_write)
            return said
    for read in _LINE_READERS:
        said = read(text)
        if said is not None:
            return said
    return _NO_COUNTS


def _of_object(text: bytes) -> TokenCounts | None:
    try:
        found, _ = _DECODER.raw_decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    for read in _READERS:
        said = read(found)
        if said is not None:
            return said
    return None


def _larger(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
