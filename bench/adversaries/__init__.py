"""Foreign providers of the adversary bench: drawn, simulated, bounded, and served over sockets."""
