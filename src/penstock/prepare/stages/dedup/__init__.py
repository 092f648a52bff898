"""Dedup: finds repeated documents by 128-bit hashes of their text, in bounded memory."""
