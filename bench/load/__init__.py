"""Load on the proxy: clients, attacks, providers, and what is measured of them."""
