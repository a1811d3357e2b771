"""Spellings of other languages, each reported and read as the one of this language."""
