"""Folds: passes that take rows through stages, from slices or buckets into shards, parts, keys or spills."""
