"""`hivemind-trio lease`: resources, and commands that run while they hold a lease."""
