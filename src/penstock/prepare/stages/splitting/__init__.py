"""Ways to split: by hash, by exact counts, by time; and the allowed names of splits."""
