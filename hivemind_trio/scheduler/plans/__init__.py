"""Plans of accounts: readings, consumption, forecast, and the gate of calls."""
