"""The language server: editors on one side, `editor` on the other. Needs the extra `lsp`."""

from .server import serve as serve
