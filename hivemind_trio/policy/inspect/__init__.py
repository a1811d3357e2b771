"""Questions about a policy: explanation of one call, effective settings, symbols."""
