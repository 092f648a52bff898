"""The CPU half: raw files in, shards out, inside a memory budget."""
