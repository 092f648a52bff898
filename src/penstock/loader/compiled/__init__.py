"""Compiled: what runs for every token, in numba, with the GIL released and the machine code kept on disk."""
