"""Puts the house together: policy, engine, doors, signals, reload."""

from .assembly import ProxyServer as ProxyServer
from .assembly import open_house as open_house
from .command import main as main
from .options import Options as Options
