"""Feeding: batches made ahead of the consumer, by threads and processes."""
