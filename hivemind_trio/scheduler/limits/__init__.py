"""Limits: concurrency, request and token rates, header feedback, token estimates and budgets."""
