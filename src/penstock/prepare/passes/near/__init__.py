"""Near: documents that are nearly the same, found in five passes: sign, pair, shingle, verify, choose."""
