"""A transparent proxy that tells a fleet of agents *when* to call the LLM.

Nothing heavy is imported here: not Lark, not Hypercorn, not Trio.
"""

__version__ = "0.2.0"
