"""Documents that `hivemind-trio help TOPIC` shows."""
