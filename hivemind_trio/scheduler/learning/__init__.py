"""One learned limit and one circuit of a provider that several nodes share."""
