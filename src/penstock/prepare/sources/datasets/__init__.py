"""Whole datasets as input: prepared by penstock, or saved by the `datasets` library."""
