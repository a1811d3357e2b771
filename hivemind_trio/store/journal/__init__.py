"""The journal: a row for each event of each call, written by a thread and read by questions."""
