"""Outbound HTTP: a pool of our own, httpx2's in its place, and one attempt at a time over either."""

from ._errors import UpstreamError as UpstreamError
from ._errors import UpstreamErrorKind as UpstreamErrorKind
from ._pool import PoolTransport as PoolTransport
from ._stock import StockTransport as StockTransport
from ._upstream import Upstream as Upstream
from ._upstream import UpstreamResponse as UpstreamResponse
