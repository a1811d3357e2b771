"""The virtual world: what providers do, as pure state."""
