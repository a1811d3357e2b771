"""Leases of resources: who has one, who waits for one, and whose turn is next."""
