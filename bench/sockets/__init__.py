"""Scenarios over loopback: agents, providers and the proxy in processes of their own."""
