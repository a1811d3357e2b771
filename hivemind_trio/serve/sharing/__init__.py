"""This node among those that share: what it asks of their store, and what the scheduler is told."""
