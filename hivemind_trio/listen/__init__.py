"""Inbound HTTP: our sockets, and Hypercorn's Trio worker made safe and lean."""
