"""`hivemind-trio demo`: the incident, with and without the proxy, on real sockets."""
