"""Commands for operators, which ask a running proxy by its control socket."""
