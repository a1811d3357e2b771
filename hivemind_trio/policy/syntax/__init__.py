"""Lexer, LALR parser with error recovery, syntax tree, includes, let bindings and formatter."""
