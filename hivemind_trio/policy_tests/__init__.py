"""Simulated tests of a policy: `load`, `upstream`, `run`. What a policy says of such a test, as a scenario of `sim`."""

from .runner import BUDGET_S as BUDGET_S
from .runner import Heard as Heard
from .runner import rehearse as rehearse
from .scenario import nodes_of as nodes_of
from .scenario import stage as stage
