"""Control API: operators' operations over HTTP, on a Unix socket of its own.

    app = ControlApp([*health_routes(engine), *operation_routes(proxy)])
    await serve_control(app, control_socket(socket_name(policy, port)))

Another door is another `ControlRoute` in that list: a method, a path and what answers.
"""

from .app import ControlApp as ControlApp
from .client import ControlClient as ControlClient
from .client import NotReachable as NotReachable
from .client import RequestRefused as RequestRefused
from .door import ControlSocket as ControlSocket
from .door import open_control as open_control
from .routes import ControlAnswer as ControlAnswer
from .routes import ControlRequest as ControlRequest
from .routes import ControlRoute as ControlRoute
from .routes import health_routes as health_routes
from .routes import operation_routes as operation_routes
from .socket_file import SocketUnavailable as SocketUnavailable
from .socket_file import running_sockets as running_sockets
from .socket_file import runtime_folder as runtime_folder
from .socket_file import socket_name as socket_name
