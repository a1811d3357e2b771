"""Store of the slots that several proxies share, in Redis."""
