"""Outbound HTTP: a pool of our own, httpx2's in its place, and one attempt at a time over either."""

from .errors import NotSent as NotSent
from .errors import UpstreamError as UpstreamError
from .errors import UpstreamErrorKind as UpstreamErrorKind
from .httpx_transport import StockTransport as StockTransport
from .pool import PoolTransport as PoolTransport
from .upstream import Upstream as Upstream
from .upstream import UpstreamResponse as UpstreamResponse
