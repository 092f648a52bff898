"""Order: which records batch k holds."""
