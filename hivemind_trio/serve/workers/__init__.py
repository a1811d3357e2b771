"""Several processes that serve as one proxy: their supervisor, what runs in each, and what passes between them."""
