"""Puts the house together: policy, engine, doors, signals, reload."""

from .assembly import ProxyServer as ProxyServer
from .assembly import base_url as base_url
from .assembly import open_house as open_house
from .autodetect import Found as Found
from .command import main as main
from .launch import Launch as Launch
from .launch import NotStarted as NotStarted
from .options import Options as Options
from .replay import Difference as Difference
from .replay import NotReplayable as NotReplayable
from .replay import Replay as Replay
