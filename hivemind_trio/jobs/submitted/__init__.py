"""Jobs that agents submit to a proxy that serves."""
