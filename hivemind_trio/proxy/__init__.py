"""The agents' door: one exchange at a time, as raw ASGI."""

from ._door import Door as Door
from ._record import CallRecord as CallRecord
