"""Facts of a request: its endpoint, its model, its prompt, and its body with another model."""
