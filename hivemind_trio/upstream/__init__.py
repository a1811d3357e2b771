"""Outbound HTTP."""
