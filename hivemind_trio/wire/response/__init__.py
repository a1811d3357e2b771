"""Facts of a response: usage, error signals, rate-limit headers; and error bodies of our own."""
