"""Batch files of samples, as penstock or older scripts wrote them."""
