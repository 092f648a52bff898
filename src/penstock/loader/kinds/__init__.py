"""Kinds of data that a loader makes batches of: events, rows of tokens, arrays. Each has the interface of kind.py."""
