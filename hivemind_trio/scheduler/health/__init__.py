"""Provider health: AIMD, circuit breaker, retries, billing and adaptive timeouts."""
