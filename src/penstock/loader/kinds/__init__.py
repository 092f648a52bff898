"""Kinds of data that a loader makes batches of. Each has the interface of kind.py."""
