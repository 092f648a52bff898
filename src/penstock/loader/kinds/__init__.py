"""Kinds of data that a loader makes batches of: events, rows of tokens, arrays, records. kind.py is their interface."""
