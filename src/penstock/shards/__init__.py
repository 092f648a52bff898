"""The contract on disk: what prepare writes and the loader reads. Needs numpy and xxhash only; Arrow on demand."""
