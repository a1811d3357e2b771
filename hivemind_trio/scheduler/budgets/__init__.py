"""Budgets: what policies allow, kept by this node, by its ledger, and by the store that several nodes share."""
