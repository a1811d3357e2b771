"""Policy source text: files, spans, string literals and the secret scan."""
