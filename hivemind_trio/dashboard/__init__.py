"""Page for operators in a browser, at an address of the control API: files, sessions, and live events."""

from .assets import page_routes as page_routes
from .feed import feed_route as feed_route
from .page_address import PageAddress as PageAddress
from .page_address import link_route as link_route
from .page_sessions import PageSessions as PageSessions
from .page_sessions import login_route as login_route
from .page_sessions import page_access as page_access
