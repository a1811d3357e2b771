"""Compiler: binder, lowering and code generation, from syntax tree to program."""
