"""State that survives a restart: budgets, hints, and the stores that keep them."""
