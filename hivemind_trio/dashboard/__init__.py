"""Page for operators in a browser, at an address of the control API: files, sessions, and live events."""

from .doors import Doors as Doors
from .page_address import PageAddress as PageAddress
from .page_sessions import PageSessions as PageSessions
from .page_sessions import page_access as page_access
