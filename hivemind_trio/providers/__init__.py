"""What providers' bytes mean: one dialect each."""
