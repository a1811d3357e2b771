"""Puts the house together: policy, engine, doors, signals, reload."""

from ._house import House as House
from ._house import open_house as open_house
from ._run import Options as Options
from ._run import main as main
