"""Operations for agents: their own state, and forecasts."""
