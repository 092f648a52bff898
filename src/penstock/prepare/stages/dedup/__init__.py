"""Dedup: which documents were there before, by 128-bit hashes of their text, in bounded memory.

A hash pass writes the keys of each slice in sorted runs (runs.py). A match pass takes one range of keys from all of
them, and from those that earlier jobs left (remembered.py), and says which rows lose (matching.py). The pass that
reads the rows for good leaves them out (losers.py).
"""
