"""Consumers: batches as JAX, PyTorch, Grain and MaxText take them."""
