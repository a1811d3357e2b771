"""Simulated agents: fleets, clients with the retry behaviour of SDKs, and their requests."""
