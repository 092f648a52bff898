"""Dedup: which documents were there before, by 128-bit hashes of their text, in bounded memory."""
