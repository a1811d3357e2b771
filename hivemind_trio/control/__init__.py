"""Control API: operators' operations over HTTP, on a Unix socket of its own.

    app = ControlApp([*health_routes(is_ready), openapi_route(), *operation_routes(proxy)], AccessCheck(...))
    async with open_control(app, ControlSocket.open(socket_name(policy, port), port), addresses):
        ...

Another door is another `ControlRoute` in that list: a method, a path and what answers.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .access import AccessCheck as AccessCheck
    from .app import ControlApp as ControlApp
    from .client import ControlClient as ControlClient
    from .client import NotReachable as NotReachable
    from .client import RequestRefused as RequestRefused
    from .door import ControlSocket as ControlSocket
    from .door import control_url as control_url
    from .door import listen_on_loopback as listen_on_loopback
    from .door import open_control as open_control
    from .exposition import HELP as HELP
    from .exposition import Collect as Collect
    from .exposition import collecting as collecting
    from .exposition import metrics_route as metrics_route
    from .exposition import of_process as of_process
    from .lease_client import HeldSession as HeldSession
    from .lease_client import LeaseNotGranted as LeaseNotGranted
    from .lease_client import PlaceInLine as PlaceInLine
    from .lease_client import WaitListener as WaitListener
    from .lease_client import held_lease as held_lease
    from .lease_route import leases_route as leases_route
    from .openapi import openapi_route as openapi_route
    from .routes import OPERATION_PATHS as OPERATION_PATHS
    from .routes import ControlAnswer as ControlAnswer
    from .routes import ControlRequest as ControlRequest
    from .routes import ControlRoute as ControlRoute
    from .routes import health_routes as health_routes
    from .routes import operation_routes as operation_routes
    from .routes import problem as problem
    from .socket_file import SocketUnavailable as SocketUnavailable
    from .socket_file import running_sockets as running_sockets
    from .socket_file import runtime_folder as runtime_folder
    from .socket_file import socket_name as socket_name
else:
    from hivemind_trio.lazy import exported_by

    __getattr__ = exported_by(__name__)
