"""One run in virtual time: event queue, routes, attempts and invariants."""
