"""Exchange: rows brought together by key. scatter.py spills them by bucket, gather.py reads the buckets."""
