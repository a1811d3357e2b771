"""Concurrency of one account shared by several proxies: leases of slots, and how they are divided."""
