"""Models of the provider's prompt cache and of the models a local server has loaded."""
