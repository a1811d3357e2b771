"""Commands for agents, which ask a running proxy by its control socket."""
