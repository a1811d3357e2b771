"""Bodies of requests and responses: content-codings undone, members found, in steps."""
