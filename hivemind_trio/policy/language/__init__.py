"""Vocabulary of the language: settings schema, values with units, globs and conditions."""
