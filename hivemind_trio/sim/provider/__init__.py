"""Simulated providers: limits, latency, faults, background load and wire format."""
